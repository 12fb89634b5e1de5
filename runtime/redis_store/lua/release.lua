-- Frees leases that are still this session's under the same fence, and drops batch records of its own.
-- KEYS: batches
-- ARGV: session id, batch ids (comma list), receipt keys (comma list), fences (comma list)
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
for _, batch in ipairs(split(ARGV[2])) do
  local name = 'batch:' .. batch
  if redis.call('HGET', name, 'session') == session then
    redis.call('DEL', name)
    redis.call('ZREM', KEYS[1], batch)
  end
end
return freed
