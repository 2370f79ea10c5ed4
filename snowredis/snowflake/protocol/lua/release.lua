-- release: make a worker id available again. Its marks stay, but for lanes that were never opened.
--
-- KEYS, ARGV[1..4] as in pool
-- ARGV[5] token    token_of: as in pool
-- ARGV[6] lease    lease_of: as in pool
-- ARGV[7] pending  string: as in pool
-- ARGV[8] opened   string of 0 | 1, one for each lane: 1 if its holder may have made ids in it; empty: unknown; killed:
--                  unknown, on behalf of a process that was killed
-- ARGV[9] stats    stats_of: as in pool
--
-- Returns released, common fields | gone, common fields: the caller is not the holder any more, nothing changed
-- Cost    O(log pool)

local token_hash, renewal_id = token_of('token', ARGV[5]), lease_of('lease', ARGV[6])
local pending = str('pending', ARGV[7], '^%x*$', 64)
local opened, stats = str('opened', ARGV[8], '^[01]*[kiled]*$', 64), stats_of('stats', ARGV[9])
local died = opened == 'killed'

return transaction(function(pool)
  local r, unreadable = record_in(pool.record, worker)
  if unreadable then return unreadable end
  if not (r and r.token == token_hash and in_chain(r, renewal_id, pending) and r.incarnation == pool.incarnation) then
    return { 'gone' }
  end

  local last = outage > 0 and #r.lanes
  -- The one exception: a lane that was never opened goes back whole, by the holder itself, if nothing was granted that it does
  -- not know of. Not the first lane: that orders all leases of a worker id
  local is_sure = not died and #opened == #r.lanes and r.renewal_id == renewal_id
  local marks = {}
  for i = 1, #r.lanes do
    local ends, held = i == last and r.outage or r['until'], i == last and held_outage or held_until
    local goes_back = i > 1 and is_sure and string.sub(opened, i, i) == '0' and ends == held
    marks[i] = goes_back and r.lanes[i] or math.max(r.lanes[i], ends)
  end

  local ended = r.lease_end <= now
  if ended then (died and note_end or note_return)(pool, worker, r) end
  r.stats = stats
  event_of_end(pool, now, died and 'died' or 'released', worker, r, last and marks[last] or 0)
  -- a process is counted once, even if its lease ended before another one found it dead
  count(pool, died and not ended and 'died' or 'releases')
  r.lanes, r['until'], r.outage, r.token, r.renewal_id, r.owner, r.lease_end = marks, 0, 0, '', '', '', now
  redis.call('ZADD', KEYS[2], now, worker)
  drop_token(token_hash)
  put(pool, 'w:' .. worker, pack_record(r))
  return { 'released' }
end)
