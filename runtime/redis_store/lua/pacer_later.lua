-- The moment at which calls that were put off come back: each later than the one before, as the rate allows, while
-- there still is something in line, so that the lane never runs dry. Repeating the last one gives the same moment.
-- ARGV[4]: id   ARGV[5]: due_us from now   ARGV[6]: spacing_us   ARGV[7]: hold_us   ARGV[8]: most_us
-- Answer: how long from now on, in us
local now = now_us(ARGV[1])
local stored = redis.call('HMGET', STATE, 'later', 'later_id')
local last = tonumber(stored[1] or '0')
if stored[2] ~= ARGV[4] then
  local hold = tonumber(ARGV[7])
  local due = now + tonumber(ARGV[5])
  -- Several that are too far away stand behind each other in line, and all will leave it: the nearest counts.
  for _, value in ipairs(redis.call('HVALS', LINE)) do
    local other = tonumber(string.match(value, '^(%d+):') or '0')
    if other > now + hold then
      due = math.min(due, other)
    end
  end
  local soonest = due - hold / 2
  if last > now then
    soonest = math.max(soonest, last + tonumber(ARGV[6]))
  end
  last = math.min(soonest, now + tonumber(ARGV[8]))
  redis.call('HSET', STATE, 'later', whole(last), 'later_id', ARGV[4])
  redis.call('EXPIRE', STATE, math.max(tonumber(ARGV[3]), math.ceil((last - now) / 1000000) + 1))
end
return whole(math.max(0, last - now))
