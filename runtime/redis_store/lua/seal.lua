-- Checks that a session still holds every lease of a batch; if so marks them dispatched and records the batch.
-- If one isn't held nothing changes. Repeating it with the same batch id changes nothing more.
-- KEYS: session, batch, batches
-- ARGV: now_us or '', lease_ttl_s, session_ttl_ms, record_ttl_s, session id, batch id, record,
--       receipt keys of the members in order (comma list), fences (comma list; 0 = another's, not asked for)
-- Answer: one character a member: '1' held, '0' not
local now = now_us(ARGV[1])
local session, batch = ARGV[5], ARGV[6]
local keys, fences = split(ARGV[8]), split(ARGV[9])
local holds, all = {}, true
for i, key in ipairs(keys) do
  local lease = redis.call('HMGET', 'lease:' .. key, 'session', 'fence')
  local held = fences[i] == '0' or (lease[1] == session and lease[2] == fences[i])
  holds[i] = held and '1' or '0'
  all = all and held
end
if all then
  for i, key in ipairs(keys) do
    if fences[i] ~= '0' then
      redis.call('HSET', 'lease:' .. key, 'state', 'dispatched', 'batch', batch)
    end
  end
  redis.call('HSET', KEYS[2], 'session', session, 'record', ARGV[7], 'keys', ARGV[8], 'fences', ARGV[9])
  redis.call('EXPIRE', KEYS[2], ARGV[4])
  redis.call('ZADD', KEYS[3], whole(now), batch)
  redis.call('EXPIRE', KEYS[3], ARGV[4])
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[3])
end
return table.concat(holds)
