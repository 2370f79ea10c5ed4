-- renew: extend a lease and its reservation; take a living holder up again after a loss.
--
-- KEYS, ARGV[1..11] as in common
-- ARGV[12] worker      int
-- ARGV[13] token       hex, of the claim
-- ARGV[14] tip         hex, of the last renewal that was answered, or empty
-- ARGV[15] next_tip    hex, of this renewal; the same again is a replay
-- ARGV[16] held_until  int, ms: the end of the reservation that the holder has
-- ARGV[17] held_lanes  ints, comma separated: where each of its lanes began
-- ARGV[18] stats       ints, comma separated: ids made, ids a second, clock offset ms, namespace, clock-backs
-- ARGV[19] owner       string, JSON
--
-- Returns ok, common answer, until, adopted 0 | 1
--       | signature, stored signature
--       | lost, common answer, why
-- Cost    O(log pool)

local worker = tostring(int('worker', ARGV[12], 0, 4194303))
local token_hash = sha(str('token', ARGV[13], '^%x+$', 64))
local tip = str('tip', ARGV[14], '^%x*$', 64)
local next_tip = str('next_tip', ARGV[15], '^%x+$', 64)
local held_until = int('held_until', ARGV[16], 0, YEAR_5138)
local held_lanes = {}
for item in string.gmatch(str('held_lanes', ARGV[17], '^%d[%d,]*$', 1100), '[^,]+') do
  held_lanes[#held_lanes + 1] = int('held_lanes', item, 0, YEAR_5138)
end
local stats = str('stats', ARGV[18], '^[%d,-]+$', 120)
local owner = str('owner', ARGV[19], '^{[^%c]*}$', 1000)
if bad then return refuse() end

local pool, stored = open_pool()
if not pool then return { 'signature', stored } end
local r = record_of(worker)
local adopted, why, stale = 0, nil, nil

if r and r.token == token_hash and r.incarnation == pool.incarnation then
  -- R5: only the tip of the chain goes on. Of two clones, the slower finds itself refused here.
  if r.tip ~= tip and r.tip ~= next_tip then why = 'another process presented this lease' end
elseif r and r.incarnation == pool.incarnation then
  why = 'the worker id was given to another process'
elseif held_until <= now + skew + lead + slack then
  -- R4: too late to know that nobody else was given this worker id where it cannot be seen from here
  why = 'Redis lost the lease and the reservation is too old to be taken up again'
else
  local lanes = {}
  for i = 1, #held_lanes do lanes[i] = math.max(held_lanes[i], r and r.lanes[i] or 0) end
  if not r then
    pool.records = pool.records + 1
  elseif r.token ~= token_hash then
    stale = r.token
  end
  -- a clock that went back before the loss is no news
  r = { token = token_hash, ['until'] = math.max(held_until, r and r['until'] or 0), lanes = lanes, claimed = now,
    stats = r and not stale and r.stats or stats }
  adopted = 1
end

if why then
  commit(pool)
  event('lost', worker, owner, 0, held_until, why)
  count('lost')
  return answer(pool, 'lost', why)
end

redis.call('ZADD', KEYS[2], now + ttl, worker)
if stale then redis.call('HDEL', KEYS[1], 't:' .. stale) end
local function clock_backs(text) return tonumber(string.match(text or '', '(%d+)$') or '0') end
if clock_backs(stats) > clock_backs(r.stats) then event('clock-back', worker, owner, r.lanes[1], r['until'], stats) end
r.incarnation, r.tip, r.renewed, r.lease_end = pool.incarnation, next_tip, now, now + ttl
r['until'], r.stats, r.owner = math.max(r['until'], capped + ttl), stats, owner
if adopted == 1 then
  event('adopted', worker, owner, r.lanes[1], r['until'], pool.raised or '')
  count('adopted')
  commit(pool, 'w:' .. worker, pack_record(r), 't:' .. token_hash, worker)
else
  commit(pool, 'w:' .. worker, pack_record(r))
end
return answer(pool, 'ok', tostring(r['until']), tostring(adopted))
