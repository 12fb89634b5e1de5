-- After a loss of data: puts back what a session holds, where it is absent, while the grace lasts.
-- Later it is too late: others may have claimed, called and released meanwhile.
-- KEYS: session, leases:epoch, leases:grace, batch (unused for queued leases), batches
-- ARGV: now_us or '', lease_ttl_s, session_ttl_ms, record_ttl_s, session id, epoch, batch id or '', record,
--       receipt keys (comma list), fences (comma list)
-- Answer: how many leases were put back; -1 = not in the grace of that epoch
if redis.call('GET', KEYS[2]) ~= ARGV[6] or redis.call('EXISTS', KEYS[3]) == 0 then
  return -1
end
local now = now_us(ARGV[1])
local session, batch = ARGV[5], ARGV[7]
local fences = split(ARGV[10])
local back = 0
redis.call('SET', KEYS[1], '1', 'PX', ARGV[3])
for i, key in ipairs(split(ARGV[9])) do
  local name = 'lease:' .. key
  if fences[i] ~= '0' and redis.call('EXISTS', name) == 0 then
    local state = batch == '' and 'queued' or 'dispatched'
    redis.call('HSET', name, 'session', session, 'fence', fences[i], 'state', state, 'batch', batch)
    redis.call('EXPIRE', name, ARGV[2])
    back = back + 1
  end
end
if batch ~= '' and redis.call('EXISTS', KEYS[4]) == 0 then
  redis.call('HSET', KEYS[4], 'session', session, 'record', ARGV[8], 'keys', ARGV[9], 'fences', ARGV[10])
  redis.call('EXPIRE', KEYS[4], ARGV[4])
  redis.call('ZADD', KEYS[5], whole(now), batch)
  redis.call('EXPIRE', KEYS[5], ARGV[4])
end
return back
