-- Appends events to a run's stream, unless the run's last one is in it, or this very write was done before.
-- KEYS[1] events:{run}   ARGV: id of the write, most entries, ms to live, then type and text of each event
-- Answers how many were appended.
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if newest[1] and (newest[1][2][2] == 'run.ended' or newest[1][2][6] == ARGV[1]) then
  return 0
end
local count = 0
for i = 4, #ARGV, 2 do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'type', ARGV[i], 'event', ARGV[i + 1], 'write', ARGV[1])
  count = count + 1
  if ARGV[i] == 'run.ended' then
    break
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return count
