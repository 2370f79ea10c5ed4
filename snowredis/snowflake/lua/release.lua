-- release: make a worker id available again, with marks lowered to the times that were used.
--
-- KEYS, ARGV[1..12] as in pool
-- ARGV[13] worker              int
-- ARGV[14] token               hex, of the claim
-- ARGV[15] renewal_id          hex, of the last renewal that was answered, or of the claim
-- ARGV[16] pending_renewal_id  hex, of a renewal that was sent and not answered, or empty
-- ARGV[17] marks_ms            ints, comma separated: each lane's first unused ms, 0 for a lane never used;
--                              empty if unknown: the whole reservation counts as used
-- ARGV[18] stats               ints, comma separated, as in renew
-- ARGV[19] reclaimed           0 | 1, 1: on behalf of a process that was killed
--
-- Returns released, common fields | gone, common fields: the caller is not the holder any more, nothing changed
-- Cost    O(log pool)

local worker = tostring(int('worker', ARGV[13], 0, 4194303))
local token_hash = sha(str('token', ARGV[14], '^%x+$', 64))
local renewal_id = str('renewal_id', ARGV[15], '^%x*$', 64)
local pending = str('pending_renewal_id', ARGV[16], '^%x*$', 64)
local marks = str('marks_ms', ARGV[17], '^[%d,]*$', 1100)
local stats = str('stats', ARGV[18], '^[%d,-]+$', 120)
local reclaimed = int('reclaimed', ARGV[19], 0, 1) == 1

return transaction(function(pool)
  local r, unreadable = record_of(worker)
  if unreadable then return unreadable end
  if not (r and r.token == token_hash and in_chain(r, renewal_id, pending) and r.incarnation == pool.incarnation) then
    return { 'gone' }
  end

  local used = marks ~= '' and ints('marks_ms', marks, #r.lanes)
  if bad then return {} end

  local ended = r.lease_end <= now and r.lease_end
  if ended then
    note_end(pool, worker, r)
    if not reclaimed then
      event('returned', worker, r.owner, r.lanes[1], r['until'], 'ended', ended)
      count('returned')
    end
  end
  local used_from, used_until = r.lanes[1], r['until']
  if used then
    -- R7: the marks are at this holder's own until; each is lowered to its first unused ms
    used_until = 0
    for i = 1, #r.lanes do
      r.lanes[i] = math.max(r.lanes[i], used[i])
      used_until = math.max(used_until, used[i])
    end
    r['until'] = 0
  end
  redis.call('ZADD', KEYS[2], now, worker)
  -- a process has one death, also if its lease ended before it was reclaimed
  if reclaimed and not ended then
    event('reclaimed', worker, r.owner, used_from, used_until, 'stats', stats, 'claimed', r.claimed, 'renewed', r.renewed)
    count('reclaimed')
  else
    event('released', worker, r.owner, used_from, used_until, 'stats', stats, 'claimed', r.claimed, 'renewed', r.renewed)
    count('releases')
  end
  r.token, r.renewal_id, r.owner, r.lease_end, r.stats = '', '', '', now, stats
  drop(pool, 't:' .. token_hash)
  put(pool, 'w:' .. worker, pack_record(r))
  return { 'released' }
end)
