-- renew: extend a lease and its reservation; adopt a lease that Redis lost.
--
-- KEYS, ARGV[1..4] as in pool
-- ARGV[5] token    token_of: as in pool
-- ARGV[6] owner    owner_of: the process that holds the lease
-- ARGV[7] lease    lease_of: as in pool
-- ARGV[8] pending  string: names this renewal; the same in a repeated one
-- ARGV[9] stats    stats_of: as in pool
--
-- Returns renewed, common fields, the lease, adopted 0 | 1
--       | lost, common fields, reason, keeps 0 | 1: the reservation of the outage lane is the holder's to its end
-- Cost    O(log pool)

local token_hash, owner, renewal_id = token_of('token', ARGV[5]), owner_of('owner', ARGV[6]), lease_of('lease', ARGV[7])
local pending, stats = str('pending', ARGV[8], '^%x+$', 64), stats_of('stats', ARGV[9])

-- Step 4, adopt: returns the record of a lease that Redis lost, as its holder has it; *r*: what the pool has of it, or of an
-- earlier lease. When it was claimed is not known any more, unless *r* says it.
local function adopted_record(pool, r, is_own)
  local last, lanes, mark = #held_lanes, {}, 0
  for i = 1, last do lanes[i] = math.max(held_lanes[i], r and r.lanes[i] or 0) end
  if outage > 0 then
    mark = math.max(r and r.outage or 0, lanes[last])
    if held_outage > held_lanes[last] then
      lanes[last], mark = held_lanes[last], math.max(mark, held_outage)
    else
      -- a lane that the holder does not have may be one of before the loss
      lanes[last], mark = math.max(mark, pool.outage_floor), 0
    end
  end
  if r and not is_own and r.token ~= '' then drop_token(r.token) end
  if not r then pool.records, pool.changed = pool.records + 1, true end
  put(pool, 't:' .. token_hash, worker)
  return { token = token_hash, ['until'] = math.max(held_until, r and r['until'] or 0), lanes = lanes, outage = mark,
    before = is_own and r.before or '', lease_end = 0, claimed = is_own and r.claimed or '0',
    stats = is_own and r.stats or stats }
end

return transaction(function(pool)
  local r, unreadable = record_in(pool.record, worker)
  if unreadable then return unreadable end
  local is_own = r and r.token == token_hash
  -- Step 3, lose: what was granted after this lease begins at its end or later, unless the pool has forgotten this one. A
  -- later claim of a copy has the same token
  local lacks = not r or (is_own and (math.max(r['until'], r.lanes[1]) < held_until
      or math.max(r.outage, r.lanes[#r.lanes]) < held_outage))
    or (not is_own and r.lanes[1] < held_until)
  if lacks and held_incarnation == pool.incarnation and durability ~= 'none' then
    -- this holder did not renew since
    note_alarm(pool, math.max(0, math.min(pool.last, held_until - ttl - lead)))
    begin_incarnation(pool, 'rolled-back', true)
  end
  -- the first lane orders all leases of a worker id
  local is_later = r and not is_own and math.max(r['until'], r.lanes[1]) > held_lanes[1]
  local is_next = is_own and in_chain(r, renewal_id, pending)
  local is_granted_here = r and r.incarnation == pool.incarnation

  local reason
  if is_granted_here and is_own then
    -- step 2, extend: of two clones, the second to renew is refused here
    if not is_next then
      reason = 'copied'
    elseif durability == 'none' and r.lease_end <= now + slack then
      reason = 'late'
    end
  elseif is_granted_here then
    reason = 'reassigned'
  elseif durability == 'none' then
    reason = 'forgotten'
  elseif held_until <= later_clock + lead + slack or held_lanes[1] < pool.start then
    -- step 4, adopt: by now, another server may have leased this worker id, which this one cannot know; or it is of a pool
    -- that has ended
    reason = 'too-old'
  elseif is_later then
    -- an older lease ended where this one began, or before
    reason = 'reassigned'
  elseif is_own and r['until'] > held_until and not is_next then
    -- a holder knows all that it was granted; if the record shows more, a copy of it was granted that
    reason = 'copied'
  end
  if reason then
    -- the outage lane is still this holder's, unless a copy of it may have given that back
    local keeps = reason ~= 'copied' and not (is_later and r.before ~= token_hash)
    event(pool, now, 'lost', worker, owner, 0, held_until, 'reason', reason, 'outage', keeps and held_outage or 0)
    count(pool, 'lost')
    return { 'lost', reason, keeps and '1' or '0' }
  end

  local adopted = not is_granted_here
  if adopted then
    -- whether a lease of before ended is not known: Redis may have forgotten a renewal
    r = adopted_record(pool, r, is_own)
  elseif r.token ~= '' and r.lease_end <= now then
    note_return(pool, worker, r)
  end
  if tonumber(string.match(stats, '%d+$') or 0) > tonumber(string.match(r.stats, '%d+$') or 0) then
    event(pool, now, 'clock-back', worker, owner, r.lanes[1], r['until'], 'stats', stats)
  end
  r.renewal_id, r.stats, r.owner = pending, stats, owner
  local lease = extend(pool, worker, r)
  if adopted then
    event(pool, now, 'adopted', worker, owner, r.lanes[1], r['until'], 'reason', pool.raised or '', 'outage', r.outage)
    count(pool, 'adopted')
    note_peak(pool)
  end
  return { 'renewed', lease, adopted and '1' or '0' }
end)
