-- release: give a worker id back, with the marks that were really used.
--
-- KEYS, ARGV[1..11] as in common
-- ARGV[12] worker  int
-- ARGV[13] token   hex, of the claim
-- ARGV[14] tip     hex, of the last renewal that was answered, or empty
-- ARGV[15] sent    hex, of a renewal that was sent and not answered, or empty
-- ARGV[16] marks   ints, comma separated: ms of each lane's first unused tick, 0 for a lane never used;
--                  empty if unknown: the reservation then stays used up to its end
-- ARGV[17] stats   ints, comma separated, as in renew
--
-- Returns ok, common answer | gone, common answer: not the holder any more, nothing changed
--       | signature, stored signature
-- Cost    O(log pool)

local worker = tostring(int('worker', ARGV[12], 0, 4194303))
local token_hash = sha(str('token', ARGV[13], '^%x+$', 64))
local tip = str('tip', ARGV[14], '^%x*$', 64)
local sent = str('sent', ARGV[15], '^%x*$', 64)
local marks = str('marks', ARGV[16], '^[%d,]*$', 1100)
local stats = str('stats', ARGV[17], '^[%d,-]+$', 120)
if bad then return refuse() end

local pool, stored = open_pool()
if not pool then return { 'signature', stored } end
local r = record_of(worker)
if not (r and r.token == token_hash and (r.tip == tip or r.tip == sent) and r.incarnation == pool.incarnation) then
  commit(pool)
  return answer(pool, 'gone')
end

local used_from, used_until = r.lanes[1] or 0, r['until']
if marks ~= '' then
  -- R7: the marks stand at this holder's own until; each goes down to what it really used
  local used = ints('marks', marks, #r.lanes)
  if bad then return refuse() end
  used_until = 0
  for i = 1, #r.lanes do
    r.lanes[i] = math.max(r.lanes[i], used[i])
    used_until = math.max(used_until, used[i])
  end
  r['until'] = 0
end
redis.call('ZADD', KEYS[2], now, worker)
event('released', worker, r.owner, used_from, used_until, stats)
count('releases')
r.token, r.tip, r.owner, r.lease_end, r.stats = '', '', '', now, stats
redis.call('HDEL', KEYS[1], 't:' .. token_hash)
commit(pool, 'w:' .. worker, pack_record(r))
return answer(pool, 'ok')
