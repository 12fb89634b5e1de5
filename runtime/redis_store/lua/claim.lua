-- Claims many leases at once for one session, `queued`. A claim is a sign of life of its session.
-- KEYS: session, leases:epoch, leases:grace
-- ARGV: now_us or '', nonce, lease_ttl_s, session_ttl_ms, session id, receipt keys (comma list),
--       floors ('' or comma list aligned to the keys)
-- Answer, comma list aligned to the keys: fence digits = granted, 'h' = held, 't<batch>' = dead and dispatched, 'g' = grace
local now = now_us(ARGV[1])
local keep_s, session = ARGV[3], ARGV[5]
see_epoch(now, ARGV[2], keep_s, ARGV[4], false)
redis.call('SET', KEYS[1], '1', 'PX', ARGV[4])
local in_grace = redis.call('EXISTS', KEYS[3]) == 1
local floors = split(ARGV[7])
local alive = {}

local function owner_lives(owner)
  if alive[owner] == nil then
    alive[owner] = is_alive(owner)
  end
  return alive[owner]
end

local function grant(key, least)
  local fence = whole(math.max(now, least))
  redis.call('HSET', key, 'session', session, 'fence', fence, 'state', 'queued', 'batch', '')
  redis.call('EXPIRE', key, keep_s)
  return fence
end

local function claim(key, floor)
  local lease = redis.call('HMGET', key, 'session', 'fence', 'state', 'batch')
  local owner = lease[1]
  if owner == session then
    if lease[3] == 'dispatched' then
      return 'h'
    end
    if tonumber(lease[2]) < floor then
      return grant(key, math.max(floor, tonumber(lease[2]) + 1))
    end
    return lease[2]
  end
  if in_grace then
    return 'g'
  end
  if not owner then
    return grant(key, floor)
  end
  if owner_lives(owner) then
    return 'h'
  end
  if lease[3] == 'dispatched' and redis.call('EXISTS', 'batch:' .. lease[4]) == 1 then
    return 't' .. lease[4]
  end
  return grant(key, math.max(floor, tonumber(lease[2]) + 1))
end

local answers = {}
for i, key in ipairs(split(ARGV[6])) do
  answers[i] = claim('lease:' .. key, tonumber(floors[i] or '0'))
end
return table.concat(answers, ',')
