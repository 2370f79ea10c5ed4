-- claim: lease a worker id, with a reservation in all its lanes.
--
-- KEYS, ARGV[1..4] as in pool
-- ARGV[5] token          token_of: a repeated claim of the same owner with the same token gets the same lease
-- ARGV[6] owner          owner_of: the process that claims
-- ARGV[7] lane_until_ms  int, end of the outage lane that the caller has, of a lease that it lost or replaces; 0: it has none
-- ARGV[8] options        string, letters, each at most once: o: the caller wants an outage lane; n: it wants lanes that are usable now, at
--                        this tick of its clock, and waits for none; g: it gives up if the pool is full, which is counted;
--                        r: the pool refused its settings before
--
-- Returns granted, common fields, the lease
--       | settling, common fields, ms to wait: the floor has not passed, and existing leases are renewed first
--       | full, common fields, ms to the next lease end
--       | behind, common fields, ms by which the caller's clock is behind every available lane
-- Cost    O(log pool)

local token_hash, owner = token_of('token', ARGV[5]), owner_of('owner', ARGV[6])
held_outage = int('lane_until_ms', ARGV[7], 0, LATEST)
local options = str('options', ARGV[8], '^[ongr]*$', 4)
local function wants(letter) return string.find(options, letter, 1, true) ~= nil end
has_lane = wants('o')
-- the start of the tick of the caller's clock: a lane with its mark at or below it is usable at once. And how much later the
-- best lane may begin: after a floor, by a Redis clock that is ahead, for a reply that comes late
local usable_from = math.max(0, math.min(caller_ms - (caller_ms - epoch) % tick, capped))
local wait_ms = wants('n') and 0 or horizon(0, ttl) + horizon(0, 0) + tick

local function record_of(of_worker) return record_in(redis.call('HGET', KEYS[1], 'w:' .. of_worker), of_worker) end
local function grant(pool, of_worker, r)
  local lease = extend(pool, of_worker, r)
  put(pool, 't:' .. token_hash, of_worker)
  return { 'granted', lease }
end
-- step 2, extend: each reply has another first renewal id, so that of two clones that repeat one claim only the one with the
-- last reply can renew. The ids of renewals are longer
local FIRST_DIGITS = 12
-- at most: worker ids that one claim puts back into the index; available ones that it looks at; how many of them that are usable
-- soon, or in part
local STEP, LOOKED_AT, NEARLY = 1000, 64, 4

-- Rebuilds the index if it has not as many entries as the hash has records, in bounded steps; returns false if it needs more.
-- By worker id: a cursor of HSCAN means nothing to a server that was restarted between the steps, or that took over.
local function rebuild_index(pool)
  local from, found = string.match(redis.call('HGET', KEYS[1], 'rebuild') or '', '^(%d+),(%d+)$')
  if not from and redis.call('ZCARD', KEYS[2]) == pool.records then return true end
  if not from then redis.call('DEL', KEYS[2]) end
  from, found = tonumber(from) or 0, tonumber(found) or 0
  local fields = {}
  for of_worker = from, math.min(from + STEP, capacity) - 1 do fields[#fields + 1] = 'w:' .. of_worker end
  for i, text in ipairs(#fields > 0 and redis.call('HMGET', KEYS[1], unpack(fields)) or {}) do
    local r = unpack_record(text)
    if r then
      redis.call('ZADD', KEYS[2], r.lease_end, from + i - 1)
      found = found + 1
    end
  end
  -- leases that were renewed are in it already. Between the steps, it may have been lost again: from the beginning, then
  local have = redis.call('ZCARD', KEYS[2])
  local needs_more = have < found or (have < pool.records and from + #fields < capacity)
  put(pool, 'rebuild', needs_more and have >= found and from + #fields .. ',' .. found or '')
  if needs_more then return false end
  pool.records, pool.changed = have, true
  return true
end

return transaction(function(pool)
  local first_renewal_id = string.sub(sha(nonce .. now .. pool.version .. token_hash), 1, FIRST_DIGITS)

  -- step 2, extend: the same claim again, because its reply was lost
  local claimed = redis.call('HGET', KEYS[1], 't:' .. token_hash)
  local r = claimed and record_of(claimed)
  if r and r.token == token_hash and r.owner == owner and r.incarnation == pool.incarnation and #r.renewal_id == FIRST_DIGITS
    and r.lease_end > now and not (durability == 'none' and r.lease_end <= now + slack) then
    r.renewal_id = first_renewal_id
    return grant(pool, claimed, r)
  end

  -- step 4, adopt: nothing is leased before the floor has passed. A holder that has not renewed yet may still be adopted after
  -- another loss, or by another server, which would not know of a lease granted here. With durability none, no lease is
  -- adopted, and each new lease begins as after a loss
  if durability == 'none' then
    pool.floor, pool.outage_floor = math.max(pool.floor, horizon(now, ttl)), math.max(pool.outage_floor, horizon(now, outage))
  elseif pool.floor > now then
    return { 'settling', tostring(pool.floor - now) }
  end
  if not rebuild_index(pool) then return { 'settling', '1' } end

  -- the Redis clock is far ahead of the caller's: marks, which are never lowered, stay where callers can reach them
  if pool.floor - usable_from > wait_ms + horizon(0, ttl) then return { 'behind', tostring(pool.floor - usable_from) } end

  local ordinary_lanes = lane_count - (outage > 0 and 1 or 0)
  local function mark_of(r, i) return math.max(r.lanes[i], r['until'], pool.floor) end
  -- The mark of the outage lane of a record, or, without one, of a worker id that was never used.
  local function outage_mark_of(r) return math.max(pool.outage_floor, r and r.lanes[lane_count] or 0, r and r.outage or 0) end
  -- Returns 1 if the outage lane is usable, or, to a caller that wants none, if it is not; else 2.
  local function lane_rank_of(r)
    return (outage == 0 or (outage_mark_of(r) <= usable_from) == has_lane) and 1 or 2
  end
  -- Returns 1 or 2 if the ordinary lanes are usable, 3 if only a backup namespace is, 4 if none is; and the lowest mark.
  local function rank_of(r)
    local low = math.huge
    for i = 1, ordinary_lanes do low = math.min(low, mark_of(r, i)) end
    if mark_of(r, 1) <= usable_from then return lane_rank_of(r), low end
    return low <= usable_from and 3 or 4, low
  end

  local chosen, before, rank, mark = nil, nil, 5, math.huge
  -- the longest available first. The marks of one that was released reach at most a ttl beyond that: if they have not passed,
  -- those of the next ones have not, either. Those that ended while clocks were ahead are out of reach, perhaps for hours, and
  -- the outage lane of a killed process for a day: they are passed over
  local nearly, passed = 0, {}
  for _, each in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, LOOKED_AT)) do
    local r = record_of(each)
    if not r then
      redis.call('ZREM', KEYS[2], each)
    elseif r.lease_end > now then
      redis.call('ZADD', KEYS[2], r.lease_end, each)
    else
      local its_rank, low = rank_of(r)
      if its_rank < rank or (its_rank == 4 and rank == 4 and low < mark) then
        chosen, before, rank, mark = each, r, its_rank, low
      end
      if its_rank == 1 then break end
      local is_far = its_rank == 4 and low > math.max(pool.floor, r.lease_end + lead + ttl)
      if is_far or (its_rank == 2 and has_lane) then passed[#passed + 1] = each end
      nearly = nearly + (is_far and 0 or 1)
      if nearly == NEARLY then break end
    end
  end
  if rank > lane_rank_of() then
    -- skip worker ids that have records because their leases were adopted after a loss; in bounded steps
    local looked_at = 0
    while pool.next < capacity and redis.call('HEXISTS', KEYS[1], 'w:' .. pool.next) == 1 do
      pool.next, looked_at = pool.next + 1, looked_at + 1
      if looked_at == 500 then
        pool.changed = true
        return { 'settling', '1' }
      end
    end
    if pool.next < capacity then
      chosen, before, rank = tostring(pool.next), nil, 1
      pool.next, pool.records, pool.changed = pool.next + 1, pool.records + 1, true
    end
  end
  -- the next claim looks at others
  for _, each in ipairs(passed) do redis.call('ZADD', KEYS[2], 'XX', 'GT', now, each) end
  if rank == 4 and mark - usable_from > wait_ms then return { 'behind', tostring(mark - usable_from) } end
  if not chosen then
    if wants('g') then count(pool, 'refused') end
    local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    return { 'full', tostring(math.max(0, (tonumber(first[2]) or now) - now)) }
  end

  if before and before.token ~= '' then
    note_end(pool, chosen, before)
    drop_token(before.token)
  end
  -- step 1, grant: each lane begins at its mark or at the floor
  local lanes = {}
  for i = 1, ordinary_lanes do lanes[i] = before and mark_of(before, i) or pool.floor end
  if outage > 0 then lanes[lane_count] = outage_mark_of(before) end
  local fresh = { token = token_hash, renewal_id = first_renewal_id, ['until'] = 0, lanes = lanes, outage = 0,
    before = before and before.token or '', lease_end = 0, claimed = now_text, stats = '', owner = owner }
  local reply = grant(pool, chosen, fresh)
  event(pool, now, 'claimed', chosen, owner, lanes[1], fresh['until'], 'lanes', table.concat(lanes, ','), 'outage', fresh.outage)
  count(pool, 'claims')
  note_peak(pool)
  return reply
end, owner, wants('r') and 'lost')
