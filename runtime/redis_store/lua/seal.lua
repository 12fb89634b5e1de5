-- Checks for each batch that a session still holds every lease of it; if so marks them dispatched and records it.
-- Of a batch that has one that isn't held nothing changes. Repeating it with the same batch ids changes nothing more.
-- KEYS: session, batches
-- ARGV: now_us or '', lease_ttl_s, session_ttl_ms, record_ttl_s, session id, then for each batch: its id, record,
--       receipt keys of the members in order (comma list), fences (comma list; 0 = another's, not asked for)
-- Answer: a text a batch, one character a member: '1' held, '0' not
local now = now_us(ARGV[1])
local record_ttl, session = ARGV[4], ARGV[5]

local function held_of(keys, fences)
  local holds, all = {}, true
  for i, key in ipairs(keys) do
    local held = fences[i] == '0'
    if not held then
      local lease = redis.call('HMGET', 'lease:' .. key, 'session', 'fence')
      held = lease[1] == session and lease[2] == fences[i]
    end
    holds[i] = held and '1' or '0'
    all = all and held
  end
  return table.concat(holds), all
end

local function record(batch, text, listed, keys, listed_fences, fences)
  for i, key in ipairs(keys) do
    if fences[i] ~= '0' then
      redis.call('HSET', 'lease:' .. key, 'state', 'dispatched', 'batch', batch)
    end
  end
  local name = 'batch:' .. batch
  redis.call('HSET', name, 'session', session, 'record', text, 'keys', listed, 'fences', listed_fences)
  redis.call('EXPIRE', name, record_ttl)
  redis.call('ZADD', KEYS[2], whole(now), batch)
end

local answers, sealed = {}, false
for n = 6, #ARGV, 4 do
  local keys, fences = split(ARGV[n + 2]), split(ARGV[n + 3])
  local holds, all = held_of(keys, fences)
  if all then
    record(ARGV[n], ARGV[n + 1], ARGV[n + 2], keys, ARGV[n + 3], fences)
    sealed = true
  end
  answers[#answers + 1] = holds
end
if sealed then
  redis.call('EXPIRE', KEYS[2], record_ttl)
  redis.call('SET', KEYS[1], '1', 'PX', ARGV[3])
end
return answers
