-- Prepended to every pacer script, after the prelude. One rate scope at a time; times in microseconds.
-- KEYS: pace state (hash), line (hash), slots (hash), leases:epoch, leases:grace, pace:lost
-- ARGV[1]: now_us or ''   ARGV[2]: meters (comma list)   ARGV[3]: keep_s
-- last ARGV: '1' if the sender used this state when it can't have expired since
-- A meter: name:interval:unit:burst:window:window limit:part:part limit:'1' if it counts items
-- The line holds one entry a ticket: '<due>:<items>' while it waits, 'ok:<items>:<time>' once it was confirmed
-- (with ':left' where it left later).
local STATE, LINE, SLOTS, EPOCH, LOST_GRACE, LOST = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local LOG_SLOTS = 256
local LOST_KEEP_S = 86400

local function fields(text)
  local parts = {}
  for part in string.gmatch(text, '[^:]+') do
    parts[#parts + 1] = part
  end
  return parts
end

-- When Redis lost its data last, as far as it still matters; nil if it didn't.
local function lost_at(now)
  if redis.call('EXISTS', EPOCH) == 0 then
    redis.call('SET', LOST, whole(now), 'EX', LOST_KEEP_S)
    return now
  end
  local lost = redis.call('GET', LOST)
  return lost and tonumber(lost)
end

local function entry(text)
  local at, count = string.match(text, '^(%d+):(%d+)$')
  return tonumber(at), tonumber(count)
end

-- A log is a list of '<time>:<tokens>', oldest first; its total is kept beside it. Returns the total within `span`.
local function forget_old(key, total, since)
  while true do
    local head = redis.call('LINDEX', key, 0)
    if not head then
      return 0
    end
    local at, count = entry(head)
    if at > since then
      return total
    end
    redis.call('LPOP', key)
    total = total - count
  end
end

-- Adds to a log, whose order is kept: what is nearer together than `width` is one entry, at the later time.
local function log_sent(window, at, tokens, width)
  local last = redis.call('LINDEX', window.key, -1)
  local last_at, count = 0, 0
  if last then
    last_at, count = entry(last)
  end
  at = math.max(at, last_at)
  if last and math.floor(last_at / width) == math.floor(at / width) then
    redis.call('LSET', window.key, -1, whole(at) .. ':' .. whole(count + tokens))
  else
    redis.call('RPUSH', window.key, whole(at) .. ':' .. whole(tokens))
  end
  redis.call('EXPIRE', window.key, ARGV[3])
  window.total = window.total + tokens
end

-- The scope's state: closed until, factor of the rate, and every meter with its `tat` and its log.
-- `tat`: when the bucket would be full again, counting what is reserved. Unknown state starts full unless
-- data was lost: then empty. Only who counts what is sent looks at the logs.
local function load_scope(now, with_logs)
  local stored = redis.call('HMGET', STATE, 'closed', 'factor', 'changed', 'cut')
  local scope = {
    closed = tonumber(stored[1] or '0'),
    factor = tonumber(stored[2] or '1'),
    changed = tonumber(stored[3] or '0'),
    cut = tonumber(stored[4] or '0'),
    now = now,
    meters = {},
  }
  for _, text in ipairs(split(ARGV[2])) do
    local f = fields(text)
    local meter = {
      name = f[1],
      interval = tonumber(f[2]),
      unit = tonumber(f[3]),
      burst = tonumber(f[4]),
      window = tonumber(f[5]),
      limit = tonumber(f[6]),
      part = tonumber(f[7]),
      part_limit = tonumber(f[8]),
      items = f[9] == '1',
    }
    meter.capacity = meter.unit + meter.burst
    meter.tat = tonumber(redis.call('HGET', STATE, 'tat:' .. meter.name) or '')
    if not meter.tat then
      local lost = lost_at(now)
      if not lost and ARGV[#ARGV] == '1' and redis.call('EXISTS', STATE) == 0 then
        lost = now
      end
      meter.tat = lost and math.ceil(lost + meter.capacity * meter.interval) or 0
    end
    if with_logs then
      local totals = redis.call('HMGET', STATE, 'window:' .. meter.name, 'part:' .. meter.name)
      meter.windows = {}
      for n, span in ipairs({meter.window, meter.part}) do
        local key = STATE .. (n == 1 and ':window:' or ':part:') .. meter.name
        meter.windows[n] = {
          key = key,
          span = span,
          limit = n == 1 and meter.limit or meter.part_limit,
          total = forget_old(key, tonumber(totals[n] or '0'), now - span),
        }
      end
    end
    scope.meters[#scope.meters + 1] = meter
  end
  return scope
end

local function save(scope)
  local values = {
    'closed', whole(scope.closed), 'factor', string.format('%.17g', scope.factor),
    'changed', whole(scope.changed), 'cut', whole(scope.cut),
  }
  for _, meter in ipairs(scope.meters) do
    values[#values + 1] = 'tat:' .. meter.name
    values[#values + 1] = whole(meter.tat)
    if meter.windows then
      values[#values + 1] = 'window:' .. meter.name
      values[#values + 1] = whole(meter.windows[1].total)
      values[#values + 1] = 'part:' .. meter.name
      values[#values + 1] = whole(meter.windows[2].total)
    end
  end
  redis.call('HSET', STATE, unpack(values))
  -- Closed for longer than an idle state is kept (a used up quota): it is kept till then.
  local keep = math.max(tonumber(ARGV[3]), math.ceil((scope.closed - scope.now) / 1000000))
  redis.call('EXPIRE', STATE, keep)
  redis.call('EXPIRE', LINE, ARGV[3])
end

local function cost(meter, items)
  return meter.items and math.min(items, meter.unit) or 1
end

-- The moment for so many items, not before `base`, behind everything reserved; takes the tokens.
local function place(scope, base, items)
  local due = base
  for _, meter in ipairs(scope.meters) do
    local room = (meter.capacity - cost(meter, items)) * meter.interval / scope.factor
    due = math.max(due, math.ceil(meter.tat - room))
  end
  for _, meter in ipairs(scope.meters) do
    local taken = cost(meter, items) * meter.interval / scope.factor
    meter.tat = math.ceil(math.max(meter.tat, due) + taken)
  end
  return due
end

-- Tokens of a place that nobody will use.
local function give_back(scope, items)
  for _, meter in ipairs(scope.meters) do
    meter.tat = math.max(0, meter.tat - math.ceil(cost(meter, items) * meter.interval / scope.factor))
  end
end

-- Everybody who waits gets a new moment from `base` on, in the old order; nothing is saved up at `base`.
local function line_up_again(scope, base)
  for _, meter in ipairs(scope.meters) do
    meter.tat = math.ceil(base + meter.burst * meter.interval / scope.factor)
  end
  local waiting = {}
  local all = redis.call('HGETALL', LINE)
  for i = 1, #all, 2 do
    local due, items = string.match(all[i + 1], '^(%d+):(%d+)$')
    if due then
      waiting[#waiting + 1] = {tonumber(due), all[i], tonumber(items)}
    end
  end
  table.sort(waiting, function(a, b)
    if a[1] ~= b[1] then
      return a[1] < b[1]
    end
    return a[2] < b[2]
  end)
  for _, ticket in ipairs(waiting) do
    local due = place(scope, math.max(base, ticket[1]), ticket[3])
    redis.call('HSET', LINE, ticket[2], whole(due) .. ':' .. whole(ticket[3]))
  end
end

-- Entries whose process is gone. Looked for only in a long line, and not at every turn.
local function tidy_line(now, bound, keep_us)
  if redis.call('HLEN', LINE) <= bound then
    return
  end
  local tidied = tonumber(redis.call('HGET', STATE, 'tidied') or '0')
  if now - tidied < 1000000 then
    return
  end
  redis.call('HSET', STATE, 'tidied', whole(now))
  local all = redis.call('HGETALL', LINE)
  for i = 1, #all, 2 do
    local at = string.match(all[i + 1], '^ok:%d+:(%d+)') or string.match(all[i + 1], '^(%d+):%d+$')
    if not at or tonumber(at) < now - keep_us then
      redis.call('HDEL', LINE, all[i])
    end
  end
end
