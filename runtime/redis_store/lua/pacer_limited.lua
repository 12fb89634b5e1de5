-- The provider said 429. With a wait: closed until then for everybody, the rate stays. Without: the rate halves,
-- once for all refusals of one moment; a scope without meters has no rate and is closed for the fallback.
-- ARGV[4]: id of this report   ARGV[5]: wait_us or ''   ARGV[6]: fallback_us   ARGV[7]: cut_us   ARGV[8]: floor
-- Answer: {closed until, factor, how long it is closed from now on in us}
local now = now_us(ARGV[1])
local scope = load_scope(now)
if redis.call('HSETNX', LINE, ARGV[4], 'ok:0:' .. whole(now)) == 1 then
  local wait = ARGV[5] ~= '' and tonumber(ARGV[5])
  if not wait and #scope.meters == 0 then
    wait = tonumber(ARGV[6])
  end
  if wait then
    if now + wait > scope.closed then
      scope.closed = now + wait
      line_up_again(scope, scope.closed)
    end
  elseif now - scope.cut >= tonumber(ARGV[7]) then
    scope.factor = math.max(tonumber(ARGV[8]), scope.factor / 2)
    scope.cut, scope.changed = now, now
    line_up_again(scope, math.max(now, scope.closed))
  end
  save(scope)
end
return {whole(scope.closed), string.format('%.17g', scope.factor), whole(math.max(0, scope.closed - now))}
