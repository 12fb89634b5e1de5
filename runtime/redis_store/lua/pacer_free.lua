-- Ends tickets: slots are freed, places that were not used are given back. A ticket ends once: later is nothing.
-- ARGV[4]: ids (comma list)
-- Answer: how many slots were freed
local now = now_us(ARGV[1])
local scope = load_scope(now)
local freed = 0
for _, id in ipairs(split(ARGV[4])) do
  freed = freed + redis.call('HDEL', SLOTS, id)
  local known = redis.call('HGET', LINE, id)
  local items = known and string.match(known, '^%d+:(%d+)$')
  if items then
    give_back(scope, tonumber(items))
  end
  redis.call('HDEL', LINE, id)
end
save(scope)
return freed
