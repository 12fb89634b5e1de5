-- Reserves a moment for each of many tickets, in order. Repeating it gives the same moments.
-- ARGV[4]: tickets (comma list of id:items)   ARGV[5]: line bound   ARGV[6]: line keep_us
-- Answer, comma list aligned: how long to wait, in us
local now = now_us(ARGV[1])
tidy_line(now, tonumber(ARGV[5]), tonumber(ARGV[6]))
local scope = load_scope(now)
local waits = {}
for i, text in ipairs(split(ARGV[4])) do
  local ask = fields(text)
  local known = redis.call('HGET', LINE, ask[1])
  local due = known and string.match(known, '^(%d+):')
  if known then
    due = due and tonumber(due) or now
  else
    due = place(scope, math.max(now, scope.closed), tonumber(ask[2]))
    redis.call('HSET', LINE, ask[1], whole(due) .. ':' .. ask[2])
  end
  waits[i] = whole(math.max(0, due - now))
end
save(scope)
return table.concat(waits, ',')
