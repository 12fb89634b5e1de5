-- After a loss of data, while the grace lasts: puts back the slots that a session holds. Later is too late.
-- ARGV[4]: ids (comma list)   ARGV[5]: session
-- Answer: how many were put back
if redis.call('EXISTS', LOST_GRACE) == 0 then
  return 0
end
local now = now_us(ARGV[1])
local back = 0
for _, id in ipairs(split(ARGV[4])) do
  back = back + redis.call('HSETNX', SLOTS, id, whole(now) .. ':' .. ARGV[5])
end
redis.call('EXPIRE', SLOTS, ARGV[3])
return back
