-- claim: lease a worker id, with a reservation in all its lanes.
--
-- KEYS, ARGV[1..6] as in pool
-- ARGV[7] token        hex, random: names this claim; a repeated claim with the same token gets the same lease
-- ARGV[8] usable_from_ms  int, start of the caller's tick: a lane with its mark at or below it is usable at once
-- ARGV[9] wait_ms      int, how much later than usable_from_ms the best lane may begin
-- ARGV[10] owner       owner_of: the process that claims
-- ARGV[11] lane_until_ms     int, end of the outage lane that the caller has, of a lease that it lost or replaces; 0: it has none
-- ARGV[12] capacity    int, worker ids of the pool
-- ARGV[13] lane_count  int, lanes of a worker id, with its outage lane
-- ARGV[14] refused     0 | 1, 1: the pool refused the settings of this caller before
--
-- Returns granted, common fields, worker, until, lanes (beginning of the reservation in each), first renewal id, end of the
--         reservation of the outage lane: at or below its beginning if that lane is not reserved
--       | settling, common fields, ms to wait: the floor was raised, and existing leases are renewed first
--       | full, common fields, ms to the next lease end
--       | behind, common fields, ms by which the caller's clock is behind every available lane
-- Cost    O(log pool)

local token = str('token', ARGV[7], '^%x+$', 64)
local usable_from = math.min(int('usable_from_ms', ARGV[8], 0, YEAR_5138), capped)
local wait_ms = int('wait_ms', ARGV[9], 0, YEAR_5138)
local owner = owner_of('owner', ARGV[10])
local lane_until_ms = int('lane_until_ms', ARGV[11], 0, YEAR_5138)
local capacity = int('capacity', ARGV[12], 1, 4194304)
local lane_count = int('lane_count', ARGV[13], outage > 0 and 2 or 1, 64)
local refused = int('refused', ARGV[14], 0, 1) == 1
local token_hash = sha(token)

local function record_of(of_worker) return record_in(redis.call('HGET', KEYS[1], 'w:' .. of_worker), of_worker) end
local function grant(pool, worker, r)
  reserve_outage_lane(pool, r)
  redis.call('ZADD', KEYS[2], r.lease_end, worker)
  put(pool, 'w:' .. worker, pack_record(r), 't:' .. token_hash, worker)
  pool.top = math.max(pool.top, r['until'])
  return { 'granted', worker, tostring(r['until']), table.concat(r.lanes, ','), r.renewal_id,
    tostring(r.outage) }
end
-- R5: each reply has another first renewal id, so that of two clones that repeat one claim only the one with the last
-- reply can renew. The ids of renewals are longer
local FIRST_DIGITS = 12

return transaction(function(pool)
  local first_renewal_id = string.sub(sha(nonce .. now .. pool.version .. token), 1, FIRST_DIGITS)

  -- R5: the same claim again, because its reply was lost
  local claimed = redis.call('HGET', KEYS[1], 't:' .. token_hash)
  if claimed then
    local r = record_of(claimed)
    if r and r.token == token_hash and r.incarnation == pool.incarnation and #r.renewal_id == FIRST_DIGITS
      and r.lease_end > now and not overdue(r) then
      r['until'] = math.max(r['until'], capped + ttl)
      r.lease_end = math.min(latest_end(), math.max(r.lease_end, now + ttl))
      r.renewed, r.renewal_id = now, first_renewal_id
      return grant(pool, claimed, r)
    end
  end

  -- R4: nothing is leased before the floor has passed. A holder that has not renewed yet may still be adopted after another
  -- loss, or by another server, which would not know of a lease granted here. With durability none, no lease is adopted
  if pool.floor > now and durability ~= 'none' then
    return { 'settling', tostring(pool.floor - now) }
  end

  -- R1: an index that has not as many entries as the hash has records is rebuilt, in bounded steps
  local cursor = string.match(redis.call('HGET', KEYS[1], 'rebuild') or '', '^%d+$')
  if cursor or redis.call('ZCARD', KEYS[2]) ~= pool.records then
    local in_one_step = not cursor
    if in_one_step then redis.call('DEL', KEYS[2]) end
    cursor = cursor or '0'
    for _ = 1, 2 do
      local page = redis.call('HSCAN', KEYS[1], cursor, 'COUNT', 500)
      cursor = page[1]
      for i = 1, #page[2], 2 do
        local worker = string.match(page[2][i], '^w:(%d+)$')
        local r = worker and unpack_record(page[2][i + 1])
        if r then redis.call('ZADD', KEYS[2], r.lease_end, worker) end
      end
      if cursor == '0' then break end
    end
    if cursor ~= '0' then
      put(pool, 'rebuild', cursor)
      return { 'settling', '1' }
    end
    -- between the steps, the index may have been lost again: then it is rebuilt again, unless the result is the same twice,
    -- as it is after a person removed a record
    local have = redis.call('ZCARD', KEYS[2])
    drop(pool, 'rebuild')
    if not in_one_step and have ~= pool.records and redis.call('HGET', KEYS[1], 'rebuilt') ~= tostring(have) then
      put(pool, 'rebuilt', have)
      return { 'settling', '1' }
    end
    drop(pool, 'rebuilt')
    pool.records = have
  end

  -- R1, R3: at or above the lane's mark and the floor; with durability none, above every reservation that may exist
  local least = durability == 'none' and math.max(pool.floor, horizon()) or pool.floor
  local outage_least = durability == 'none' and math.max(pool.outage_floor, outage_horizon()) or pool.outage_floor
  -- the Redis clock is far ahead of the caller's: marks, which are never lowered, stay where callers can reach them
  if least - usable_from > wait_ms + horizon() - now then return { 'behind', tostring(least - usable_from) } end

  local ordinary_lanes = lane_count - (outage > 0 and 1 or 0)
  local function low_mark(r)
    local low = math.huge
    for i = 1, ordinary_lanes do low = math.min(low, math.max(r.lanes[i], r['until'])) end
    return low
  end
  -- Returns whether the outage lane of a record is open, or, without a record, that of a worker id that was never used.
  local function is_open(r)
    return outage == 0 or math.max(outage_least, r and r.lanes[lane_count] or 0, r and r.outage or 0) <= usable_from
  end

  local chosen, chosen_record, closed, closed_record, nearest, nearest_record, nearest_mark
  -- more than one: the marks of those that ended while clocks were ahead are out of reach, perhaps for hours
  local free = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 64)
  for _, worker in ipairs(free) do
    local r = record_of(worker)
    if not r or #r.lanes ~= lane_count or tonumber(worker) >= capacity then
      if not r then redis.call('ZREM', KEYS[2], worker) end
    elseif r.lease_end > now then
      redis.call('ZADD', KEYS[2], r.lease_end, worker)
    else
      local mark = low_mark(r)
      if mark <= usable_from and is_open(r) then
        chosen, chosen_record = worker, r
        break
      elseif mark <= usable_from then
        if not closed then closed, closed_record = worker, r end
      elseif not nearest or mark < nearest_mark then
        nearest, nearest_record, nearest_mark = worker, r, mark
      end
    end
  end
  -- one that has records, rather than a new one without an outage lane
  if not chosen and closed and not is_open() then chosen, chosen_record = closed, closed_record end
  if not chosen then
    -- skip worker ids that have records because their leases were adopted after a loss; in bounded steps
    local looked_at = 0
    while pool.next < capacity and redis.call('HEXISTS', KEYS[1], 'w:' .. pool.next) == 1 do
      pool.next, looked_at = pool.next + 1, looked_at + 1
      if looked_at == 500 then
        return { 'settling', '1' }
      end
    end
    if pool.next < capacity then
      chosen = tostring(pool.next)
      pool.next = pool.next + 1
    elseif closed then
      chosen, chosen_record = closed, closed_record
    elseif nearest and nearest_mark - usable_from <= wait_ms then
      chosen, chosen_record = nearest, nearest_record
    end
  end
  if not chosen then
    if nearest then return { 'behind', tostring(nearest_mark - usable_from) } end
    count('refused')
    local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
    return { 'full', tostring(math.max(0, (tonumber(first[2]) or now) - now)) }
  end

  local lanes = {}
  local before = chosen_record
  if before then
    if before.token ~= '' then
      note_end(pool, chosen, before)
      drop_token(pool, before.token, chosen)
    end
  else
    pool.records = pool.records + 1
  end
  for i = 1, ordinary_lanes do
    lanes[i] = math.max(before and before.lanes[i] or 0, before and before['until'] or 0, least)
  end
  if outage > 0 then
    lanes[lane_count] = math.max(before and before.lanes[lane_count] or 0, before and before.outage or 0, outage_least)
  end
  local r = new_record({ token = token_hash, incarnation = pool.incarnation, renewal_id = first_renewal_id,
    ['until'] = capped + ttl, lanes = lanes, lowered = before and before.lowered, lease_end = now + ttl, claimed = now,
    renewed = now, owner = owner })
  local reply = grant(pool, chosen, r)
  event('claimed', chosen, owner, lanes[1], r['until'], 'lanes', table.concat(lanes, ','), 'outage', r.outage)
  count('claims')
  note_peak(pool)
  return reply
end, owner, lane_until_ms, not refused)
