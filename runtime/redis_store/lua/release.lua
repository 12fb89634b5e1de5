-- Frees leases that are still this session's under the same fence, and drops a batch record of its own.
-- KEYS: batch (unused when there is none), batches
-- ARGV: session id, batch id or '', receipt keys (comma list), fences (comma list)
-- Answer: how many leases were freed
local session = ARGV[1]
local fences = split(ARGV[4])
local freed = 0
for i, key in ipairs(split(ARGV[3])) do
  local name = 'lease:' .. key
  local lease = redis.call('HMGET', name, 'session', 'fence')
  if lease[1] == session and lease[2] == fences[i] then
    redis.call('DEL', name)
    freed = freed + 1
  end
end
if ARGV[2] ~= '' and redis.call('HGET', KEYS[1], 'session') == session then
  redis.call('DEL', KEYS[1])
  redis.call('ZREM', KEYS[2], ARGV[2])
end
return freed
