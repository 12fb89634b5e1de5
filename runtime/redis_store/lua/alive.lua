-- Which leases a live session holds.
-- ARGV: receipt keys (comma list)
-- Answer: one character a key: '1' held by a live session, '0' not
local verdicts, alive = {}, {}
for i, key in ipairs(split(ARGV[1])) do
  local owner = redis.call('HGET', 'lease:' .. key, 'session')
  if owner and alive[owner] == nil then
    alive[owner] = is_alive(owner)
  end
  verdicts[i] = (owner and alive[owner]) and '1' or '0'
end
return table.concat(verdicts)
