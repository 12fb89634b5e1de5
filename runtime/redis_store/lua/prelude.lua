-- Prepended to every script. Times are microseconds of the server's clock; `now` is given by tests only.

local function now_us(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function whole(number)
  return string.format('%.0f', number)
end

local function is_alive(session)
  return session and redis.call('EXISTS', 'session:' .. session) == 1
end

-- The epoch; when it is missing the data was lost: a new one, and grace unless this is a first start.
local function see_epoch(now, nonce, keep_s, grace_ms, is_first)
  local epoch = redis.call('GET', 'leases:epoch')
  if epoch then
    return epoch
  end
  epoch = whole(math.floor(now / 1000)) .. '-' .. nonce
  redis.call('SET', 'leases:epoch', epoch, 'EX', keep_s)
  if not is_first then
    redis.call('SET', 'leases:grace', epoch, 'PX', grace_ms)
    redis.call('SET', 'pace:lost', whole(now), 'EX', 86400)
  end
  return epoch
end

local function split(text)
  local parts = {}
  for part in string.gmatch(text, '[^,]+') do
    parts[#parts + 1] = part
  end
  return parts
end
