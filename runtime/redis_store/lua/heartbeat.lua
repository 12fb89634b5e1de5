-- Keeps a session alive and sees to the epoch.
-- KEYS: session, leases:epoch, leases:grace
-- ARGV: now_us or '', nonce, lease_ttl_s, session_ttl_ms, first ('1' or '0')
-- Answer: {epoch, '1' if in grace else '0'}
local now = now_us(ARGV[1])
local epoch = see_epoch(now, ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1')
redis.call('EXPIRE', KEYS[2], ARGV[3])
redis.call('SET', KEYS[1], '1', 'PX', ARGV[4])
return {epoch, tostring(redis.call('EXISTS', KEYS[3]))}
