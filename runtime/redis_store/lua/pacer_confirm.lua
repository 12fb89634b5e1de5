-- Confirms due tickets: what they may send is counted as sent now. One that may not send yet is told how long to
-- wait and keeps its place. Repeating it gives the same grants. A ticket without a place is given one.
-- ARGV[4]: tickets (comma list of id:least:most)   ARGV[5]: session   ARGV[6]: concurrency or 0
-- ARGV[7]: hold_us   ARGV[8]: slot_wait_us   ARGV[9]: session_ttl_ms
-- Answer: {factor of the rate, then one text a ticket: 'g<items>' granted, else 'w<us>'}
local EARLY_US = 500 -- timers of two machines

local now = now_us(ARGV[1])
local session, cap = ARGV[5], tonumber(ARGV[6])
local scope = load_scope(now, true)
local in_use, alive = 0, {}
local is_free = cap == 0 and #scope.meters == 0 -- nothing is counted: a repeat is harmless by itself

local function lives(owner)
  if alive[owner] == nil then
    alive[owner] = is_alive(owner)
  end
  return alive[owner]
end

if cap > 0 then
  -- Whoever takes a slot is alive, or it would be taken away while its request is on the wire.
  redis.call('SET', 'session:' .. session, '1', 'PX', ARGV[9])
  local held = redis.call('HGETALL', SLOTS)
  for i = 1, #held, 2 do
    local since, owner = string.match(held[i + 1], '^(%d+):(.*)$')
    if tonumber(since) + tonumber(ARGV[7]) < now or not lives(owner) then
      redis.call('HDEL', SLOTS, held[i])
    else
      in_use = in_use + 1
    end
  end
end

-- When a window lets so many more through.
local function opens(window, tokens)
  local total = window.total
  if total + tokens <= window.limit then
    return now
  end
  for _, text in ipairs(redis.call('LRANGE', window.key, 0, -1)) do
    local at, count = entry(text)
    total = total - count
    if total + tokens <= window.limit then
      return at + window.span
    end
  end
  return now + window.span
end

-- Items that all meters let through, at most `most`: the reserved ones, and tokens that nobody has reserved.
local function room(reserved, most)
  local items = most
  for _, meter in ipairs(scope.meters) do
    if meter.items then
      local saved = meter.capacity - math.max(0, meter.tat - now) * scope.factor / meter.interval
      local spare = math.max(0, math.floor(saved + 0.01)) -- moments are whole microseconds
      items = math.min(items, reserved + spare, meter.unit)
      for _, window in ipairs(meter.windows) do
        items = math.min(items, math.floor(window.limit - window.total))
      end
    end
  end
  return items
end

local function opening(tokens_for)
  local at = now
  for _, meter in ipairs(scope.meters) do
    local tokens = cost(meter, tokens_for)
    for _, window in ipairs(meter.windows) do
      at = math.max(at, opens(window, tokens))
    end
  end
  return at
end

local function count_sent(items)
  for _, meter in ipairs(scope.meters) do
    for _, window in ipairs(meter.windows) do
      log_sent(window, now, cost(meter, items), meter.window / LOG_SLOTS)
    end
  end
end

-- The ticket's tokens become those of what it really sends.
local function settle(reserved, items)
  for _, meter in ipairs(scope.meters) do
    if meter.items then
      local more = cost(meter, items) - cost(meter, reserved)
      if more > 0 then
        meter.tat = math.ceil(math.max(meter.tat, now) + more * meter.interval / scope.factor)
      else
        meter.tat = math.max(0, meter.tat + math.ceil(more * meter.interval / scope.factor))
      end
    end
  end
end

local function later(id, at, reserved)
  redis.call('HSET', LINE, id, whole(at) .. ':' .. whole(reserved))
  return 'w' .. whole(math.max(1, at - now))
end

local function confirm(id, least, most)
  local known = redis.call('HGET', LINE, id)
  local granted = known and string.match(known, '^ok:(%d+):')
  if granted then
    return 'g' .. granted
  end
  local due, reserved = string.match(known or '', '^(%d+):(%d+)$')
  if due then
    due, reserved = tonumber(due), tonumber(reserved)
  else
    reserved = math.max(1, least > 0 and least or most)
    due = place(scope, math.max(now, scope.closed), reserved)
  end
  if scope.closed > now then
    due = math.max(due, scope.closed)
  end
  if due > now + EARLY_US or scope.closed > now then
    return later(id, due, reserved)
  end
  -- `least` of 0: as many as were reserved, if there still are so many.
  local wanted = least > 0 and least or math.min(reserved, most)
  local at = opening(wanted)
  if at > now then
    return later(id, at, reserved)
  end
  if cap > 0 and redis.call('HEXISTS', SLOTS, id) == 0 then
    if in_use >= cap or redis.call('EXISTS', LOST_GRACE) == 1 then
      return later(id, now + tonumber(ARGV[8]), reserved)
    end
    in_use = in_use + 1
    redis.call('HSET', SLOTS, id, whole(now) .. ':' .. session)
    redis.call('EXPIRE', SLOTS, ARGV[3])
  end
  local items = least > 0 and least or room(reserved, most)
  if is_free then
    redis.call('HDEL', LINE, id)
  else
    settle(reserved, items)
    count_sent(items)
    redis.call('HSET', LINE, id, 'ok:' .. whole(items) .. ':' .. whole(now))
  end
  return 'g' .. whole(items)
end

local answers = {string.format('%.17g', scope.factor)}
for _, text in ipairs(split(ARGV[4])) do
  local ask = fields(text)
  answers[#answers + 1] = confirm(ask[1], tonumber(ask[2]), tonumber(ask[3]))
end
if not is_free then
  save(scope)
end
redis.call('EXPIRE', LINE, ARGV[3])
return answers
