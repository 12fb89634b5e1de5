-- Gives a dead session's batch and its leases, under new fences, to one finder. Repeatable by that finder.
-- KEYS: session, leases:grace, batch, batches
-- ARGV: now_us or '', lease_ttl_s, session_ttl_ms, record_ttl_s, session id, batch id
-- Answer: {record, fences (comma list; 0 = that lease is another's)} or {} if alive, gone or another's
local stored = redis.call('HMGET', KEYS[3], 'session', 'record', 'keys', 'fences')
local owner, session, batch = stored[1], ARGV[5], ARGV[6]
if not owner then
  redis.call('ZREM', KEYS[4], batch)
  return {}
end
if owner == session then
  return {stored[2], stored[4]}
end
if is_alive(owner) or redis.call('EXISTS', KEYS[2]) == 1 then
  return {}
end
local now = now_us(ARGV[1])
local fences = {}
for i, key in ipairs(split(stored[3])) do
  local name = 'lease:' .. key
  local lease = redis.call('HMGET', name, 'session', 'fence', 'batch')
  local free = not lease[1] or lease[1] == session or not is_alive(lease[1])
  if free and (not lease[1] or lease[3] == batch) then
    local fence = whole(math.max(now, tonumber(lease[2] or '0') + 1))
    redis.call('HSET', name, 'session', session, 'fence', fence, 'state', 'dispatched', 'batch', batch)
    redis.call('EXPIRE', name, ARGV[2])
    fences[i] = fence
  else
    fences[i] = '0'
  end
end
redis.call('SET', KEYS[1], '1', 'PX', ARGV[3])
local joined = table.concat(fences, ',')
redis.call('HSET', KEYS[3], 'session', session, 'fences', joined)
redis.call('EXPIRE', KEYS[3], ARGV[4])
return {stored[2], joined}
