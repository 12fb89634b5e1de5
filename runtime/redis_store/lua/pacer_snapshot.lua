-- What a scope is up to. Changes nothing; slots of the dead are left out.
-- ARGV[4]: hold_us
-- Answer: {now, closed until, factor, tickets that wait, id, since, session, id, since, session, …}
local now = now_us(ARGV[1])
local stored = redis.call('HMGET', STATE, 'closed', 'factor')
local waiting = 0
for _, value in ipairs(redis.call('HVALS', LINE)) do
  if string.match(value, '^%d+:') then
    waiting = waiting + 1
  end
end
local answer = {whole(now), stored[1] or '0', stored[2] or '1', whole(waiting)}
local held = redis.call('HGETALL', SLOTS)
for i = 1, #held, 2 do
  local since, owner = string.match(held[i + 1], '^(%d+):(.*)$')
  if tonumber(since) + tonumber(ARGV[4]) >= now and is_alive(owner) then
    answer[#answer + 1] = held[i]
    answer[#answer + 1] = since
    answer[#answer + 1] = owner
  end
end
return answer
