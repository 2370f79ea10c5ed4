-- renew: extend a lease and its reservation; adopt a lease that Redis lost.
--
-- KEYS, ARGV[1..6] as in pool
-- ARGV[7] lease              lease_of: what the holder has; its pending renewal id is that of this renewal, and the same
--                            in a repeated one
-- ARGV[8] held_lanes_ms      ints, comma separated: the beginning of each of its lanes
-- ARGV[9] stats              stats_of: WorkerStats of protocol.py
-- ARGV[10] owner             owner_of: the process that holds the lease
-- ARGV[11] held_incarnation  incarnation_of: of the pool when the lease was granted or renewed last; empty: unknown
--
-- Returns renewed, common fields, until, adopted 0 | 1, beginning and end of the reservation of the outage lane
--       | lost, common fields, reason. The reservation of the outage lane is the holder's to its end, unless the reason is
--         copied
-- Cost    O(log pool)

local token_hash, renewal_id, pending_renewal_id, held_until, held_outage = lease_of('lease', ARGV[7])
if pending_renewal_id == '' then bad = bad or 'lease' end
local held_lanes = ints('held_lanes_ms', ARGV[8])
local stats = stats_of('stats', ARGV[9])
local owner = owner_of('owner', ARGV[10])
local held_incarnation = incarnation_of('held_incarnation', ARGV[11])
if known_incarnation == '' then known_incarnation = held_incarnation end

local ordinary_lanes = #held_lanes - (outage > 0 and 1 or 0)
if ordinary_lanes < 1 then bad = bad or 'held_lanes_ms' end

-- R4: in every lane, an older record begins at or below this lease, and that of a lease that was claimed later at or
-- above. Returns true if *r* is of a later lease, false if it is of an earlier one, nil if nothing was used in between.
local function claimed_later(r)
  for i = 1, ordinary_lanes do
    local from = r.lanes[i] or 0
    if from ~= held_lanes[i] then return from > held_lanes[i] end
  end
end

-- Returns whether a release may have lowered the outage lane of the caller: it did not if that had ended where the
-- lowered lane began.
local function was_lowered(r)
  for from, to in string.gmatch(r.lowered, '(%d+)-(%d+)') do
    if held_outage > tonumber(from) and held_outage <= tonumber(to) then return true end
  end
  return false
end

return transaction(function(pool)
  local r, unreadable = record_in(pool.record, worker)
  if unreadable then return unreadable end
  local is_own, later = r and r.token == token_hash, nil
  if r and not is_own then later = claimed_later(r) end
  -- R10: the pool lacks what it granted to this holder in the same incarnation. Equal lanes under another token are that
  -- case: a lease that was granted later begins above this one, unless the pool has forgotten this one, or it was released
  -- unused: then this is a late renewal, or that of a copy
  local lacks = not r or later == false
  if is_own then
    lacks = r['until'] < held_until or r.outage < held_outage
  elseif r and later == nil then
    lacks = r.token ~= '' and not was_unused(token_hash)
  end
  if lacks and durability ~= 'none' and held_incarnation == pool.incarnation then
    -- this holder did not renew since
    note_rollback(pool, math.max(0, math.min(pool.last, held_until - ttl - lead)))
    begin_incarnation(pool, 'rolled-back', true)
  end
  local adopted, reason, stale = 0, nil, nil
  local ended = r and r.token ~= '' and r.lease_end <= now and r.lease_end

  if is_own and r.incarnation == pool.incarnation then
    -- R5: of two clones, the second to renew is refused here
    if not in_chain(r, renewal_id, pending_renewal_id) then
      reason = 'copied'
    elseif overdue(r) then
      reason = 'late'
    end
  elseif r and r.incarnation == pool.incarnation then
    reason = 'reassigned'
  elseif durability == 'none' then
    reason = 'forgotten'
  elseif held_until <= now + skew + lead + slack then
    -- R4: by now, another server may have leased this worker id, which this one cannot know
    reason = 'too-old'
  elseif r and not is_own and (later or (later == nil and r.token ~= '' and r['until'] > held_until)) then
    -- a clone whose original released the lease, or a renewal that arrives after the release. If nothing was used in
    -- between, the lease that was granted less is lost
    reason = 'reassigned'
  elseif is_own and r['until'] > held_until and not in_chain(r, renewal_id, pending_renewal_id) then
    -- R5, also after a loss: a holder knows all that it was granted; if the record shows more, a copy of it was granted that
    reason = 'copied'
  else
    local lanes, last, mark = {}, held_lanes[#held_lanes], 0
    for i = 1, #held_lanes do lanes[i] = math.max(held_lanes[i], r and r.lanes[i] or 0) end
    if outage > 0 then
      mark = math.max(r and r.outage or 0, lanes[#lanes])
      if held_outage > last then
        lanes[#lanes], mark = last, math.max(mark, held_outage)
      else
        -- R3: a lane that the holder does not have may be one of before the loss
        lanes[#lanes], mark = math.max(mark, pool.outage_floor), 0
      end
    end
    if not r then
      pool.records = pool.records + 1
    elseif r.token ~= token_hash then
      stale = r.token
    end
    -- the old stats: a clock that went back before the loss is not reported again
    r = new_record({ token = token_hash, ['until'] = math.max(held_until, r and r['until'] or 0), lanes = lanes,
      outage = mark, lowered = r and r.lowered, claimed = now, stats = r and not stale and r.stats or stats })
    adopted = 1
  end

  if reason then
    -- the outage lane stays with this holder, unless a copy of it may have released that
    if r and outage > 0 and held_outage > held_lanes[#held_lanes] and was_lowered(r) then reason = 'copied' end
    event('lost', worker, owner, 0, held_until, 'reason', reason, 'outage', held_outage)
    count('lost')
    return { 'lost', reason }
  end

  if stale then drop_token(pool, stale, worker) end
  if ended and adopted == 0 then
    note_end(pool, worker, r)
    event('returned', worker, owner, r.lanes[1], r['until'], 'ended', ended)
    count('returned')
  elseif ended and ended > pool.swept then
    -- nobody wrote that it ended, since Redis may only have forgotten a renewal; those who read the pool counted it
    count('expired')
    if not stale then count('returned') end
  end
  if tonumber(string.match(stats, '%d+$') or 0) > tonumber(string.match(r.stats, '%d+$') or 0) then
    event('clock-back', worker, owner, r.lanes[1], r['until'], 'stats', stats)
  end
  r.incarnation, r.renewal_id, r.renewed = pool.incarnation, pending_renewal_id, now
  -- R4: never lowered, even if the Redis clock went back: the worker id is leased again only after the end of the
  -- reservation, less the lead, on the clock of any of the servers
  r.lease_end = math.min(latest_end(), math.max(r.lease_end, now + ttl))
  redis.call('ZADD', KEYS[2], r.lease_end, worker)
  r['until'], r.stats, r.owner = math.max(r['until'], capped + ttl), stats, owner
  reserve_outage_lane(pool, r)
  pool.top = math.max(pool.top, r['until'])
  put(pool, 'w:' .. worker, pack_record(r))
  if adopted == 1 then
    event('adopted', worker, owner, r.lanes[1], r['until'], 'reason', pool.raised or '', 'outage', r.outage)
    count('adopted')
    note_peak(pool)
    put(pool, 't:' .. token_hash, worker)
    if pool.sure_floor then
      -- R9: this lease is of the present layout, so its plan was not undone before the loss
      pool.floor, pool.sure_floor = math.min(pool.floor, pool.sure_floor), nil
      drop(pool, 'sure_floor')
    end
  end
  return { 'renewed', tostring(r['until']), tostring(adopted), tostring(outage > 0 and r.lanes[#r.lanes] or 0),
    tostring(r.outage) }
end, nil, held_outage > (held_lanes[#held_lanes] or 0) and held_outage or 0)
