-- Tickets that left later than they were confirmed: they count from when they left, or those behind them would
-- arrive too near. Repeating it changes nothing more.
-- ARGV[4]: tickets (comma list of id:late_us)
-- Answer: how many were moved
local now = now_us(ARGV[1])
local scope = load_scope(now, true)
local moved = 0

local function take_out(window, since, tokens, width)
  for i, text in ipairs(redis.call('LRANGE', window.key, 0, -1)) do
    local at, count = entry(text)
    if math.floor(at / width) == math.floor(since / width) and count >= tokens then
      redis.call('LSET', window.key, i - 1, whole(at) .. ':' .. whole(count - tokens))
      window.total = window.total - tokens
      return
    end
  end
end

for _, text in ipairs(split(ARGV[4])) do
  local ask = fields(text)
  local items, since = string.match(redis.call('HGET', LINE, ask[1]) or '', '^ok:(%d+):(%d+)$')
  if items then
    local left = math.min(now, tonumber(since) + tonumber(ask[2]))
    for _, meter in ipairs(scope.meters) do
      local tokens, width = cost(meter, tonumber(items)), meter.window / LOG_SLOTS
      for _, window in ipairs(meter.windows) do
        take_out(window, tonumber(since), tokens, width)
        log_sent(window, left, tokens, width)
      end
    end
    redis.call('HSET', LINE, ask[1], 'ok:' .. items .. ':' .. whole(left) .. ':left')
    moved = moved + 1
  end
end
save(scope)
return moved
