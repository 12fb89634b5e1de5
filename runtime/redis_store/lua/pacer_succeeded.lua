-- The provider works: a lowered rate recovers by one step a while. Repeating it within that while is nothing.
-- ARGV[4]: recover_us   ARGV[5]: step
-- Answer: the factor
local now = now_us(ARGV[1])
local scope = load_scope(now)
if scope.factor < 1 and now - scope.changed >= tonumber(ARGV[4]) then
  scope.factor = math.min(1, scope.factor + tonumber(ARGV[5]))
  scope.changed = now
  save(scope)
end
return string.format('%.17g', scope.factor)
