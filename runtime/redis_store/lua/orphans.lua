-- Ids of recorded batches whose session is dead, oldest first; drops index entries without a record.
-- KEYS: batches, leases:grace
-- ARGV: limit, scan bound
-- Answer: list of batch ids; empty in grace
if redis.call('EXISTS', KEYS[2]) == 1 then
  return {}
end
local found, alive = {}, {}
for _, batch in ipairs(redis.call('ZRANGE', KEYS[1], 0, tonumber(ARGV[2]) - 1)) do
  local owner = redis.call('HGET', 'batch:' .. batch, 'session')
  if not owner then
    redis.call('ZREM', KEYS[1], batch)
  else
    if alive[owner] == nil then
      alive[owner] = is_alive(owner)
    end
    if not alive[owner] then
      found[#found + 1] = batch
    end
  end
  if #found >= tonumber(ARGV[1]) then
    break
  end
end
return found
