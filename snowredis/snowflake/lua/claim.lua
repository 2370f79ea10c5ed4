-- claim: lease a worker id, with a reservation in all its lanes.
--
-- KEYS, ARGV[1..6] as in pool
-- ARGV[7] token        hex, random: names this claim; a repeated claim with the same token gets the same lease
-- ARGV[8] usable_from_ms  int, start of the tick of the caller's clock, at least 0: a lane with its mark at or below it is
--                      usable at once
-- ARGV[9] wait_ms      int, how much later than usable_from_ms the best lane may begin
-- ARGV[10] owner       owner_of: the process that claims
-- ARGV[11] lane_until_ms  int, end of the outage lane that the caller has, of a lease that it lost or replaces; 0: it has none
-- ARGV[12] gives_up    0 | 1, 1: the caller gives up if the pool is full, which is counted
-- ARGV[13] capacity    int, worker ids of the pool: 2^worker bits
-- ARGV[14] lane_count  int, lanes of a worker id, with its outage lane: 2^backup bits
-- ARGV[15] refused     0 | 1, 1: the pool refused the settings of this caller before
--
-- Returns granted, common fields, worker, until, lanes (beginning of the reservation in each), first renewal id, end of the
--         reservation of the outage lane: at or below its beginning if that lane is not reserved
--       | settling, common fields, ms to wait: the floor has not passed, and existing leases are renewed first
--       | full, common fields, ms to the next lease end
--       | behind, common fields, ms by which the caller's clock is behind every available lane
-- Cost    O(log pool)

local token = str('token', ARGV[7], '^%x+$', 64)
local usable_from = math.min(int('usable_from_ms', ARGV[8], 0, YEAR_5138), capped)
local wait_ms = int('wait_ms', ARGV[9], 0, YEAR_5138)
local owner = owner_of('owner', ARGV[10])
held_outage = int('lane_until_ms', ARGV[11], 0, YEAR_5138)
local gives_up = int('gives_up', ARGV[12], 0, 1) == 1
local capacity = int('capacity', ARGV[13], 1, 4194304)
local lane_count = int('lane_count', ARGV[14], outage > 0 and 2 or 1, 64)
local token_hash = sha(token)

local function record_of(of_worker) return record_in(redis.call('HGET', KEYS[1], 'w:' .. of_worker), of_worker) end
local function grant(pool, of_worker, r)
  extend(pool, of_worker, r)
  put(pool, 't:' .. token_hash, of_worker)
  return { 'granted', of_worker, r['until'], table.concat(r.lanes, ','), r.renewal_id, r.outage }
end
-- step 2, extend: each reply has another first renewal id, so that of two clones that repeat one claim only the one with the
-- last reply can renew. The ids of renewals are longer
local FIRST_DIGITS = 12
-- available worker ids that one claim looks at, at most
local LOOKED_AT = 64

-- Rebuilds the index if it has not as many entries as the hash has records, in bounded steps; returns false if it needs more.
local function rebuild_index(pool)
  local cursor, found = string.match(redis.call('HGET', KEYS[1], 'rebuild') or '', '^(%d+),(%d+)$')
  if not cursor and redis.call('ZCARD', KEYS[2]) == pool.records then return true end
  if not cursor then redis.call('DEL', KEYS[2]) end
  local page = redis.call('HSCAN', KEYS[1], cursor or '0', 'COUNT', 1000)
  cursor, found = page[1], tonumber(found) or 0
  for i = 1, #page[2], 2 do
    local of_worker = string.match(page[2][i], '^w:(%d+)$')
    local r = of_worker and unpack_record(page[2][i + 1])
    if r then found = found + redis.call('ZADD', KEYS[2], r.lease_end, of_worker) end
  end
  put(pool, 'rebuild', cursor ~= '0' and cursor .. ',' .. found or '')
  -- between the steps, the index may have been lost again; leases that were renewed are in it already
  local have = redis.call('ZCARD', KEYS[2])
  if cursor ~= '0' or have < found then return false end
  pool.records, pool.changed = have, true
  return true
end

return transaction(function(pool)
  local first_renewal_id = string.sub(sha(nonce .. now .. pool.version .. token), 1, FIRST_DIGITS)

  -- step 2, extend: the same claim again, because its reply was lost
  local claimed = redis.call('HGET', KEYS[1], 't:' .. token_hash)
  local r = claimed and record_of(claimed)
  if r and r.token == token_hash and r.incarnation == pool.incarnation and #r.renewal_id == FIRST_DIGITS
    and r.lease_end > now and not (durability == 'none' and r.lease_end <= now + skew + slack) then
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
  -- Returns whether the outage lane of a record is open, or, without a record, that of a worker id that was never used.
  local function is_open(r)
    return outage == 0 or math.max(pool.outage_floor, r and r.lanes[lane_count] or 0, r and r.outage or 0) <= usable_from
  end
  -- Returns 1 if all of its lanes are usable, 2 without the outage lane, 3 if only a backup namespace is, 4 if none is; and its
  -- lowest mark.
  local function rank_of(r)
    local low = math.huge
    for i = 1, ordinary_lanes do low = math.min(low, mark_of(r, i)) end
    if mark_of(r, 1) <= usable_from then return is_open(r) and 1 or 2, low end
    return low <= usable_from and 3 or 4, low
  end

  local chosen, before, rank, mark = nil, nil, 5, math.huge
  -- more than one: the marks of those that ended while clocks were ahead are out of reach, perhaps for hours
  local free = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, LOOKED_AT)
  for _, each in ipairs(free) do
    local r = record_of(each)
    if not r or #r.lanes ~= lane_count or tonumber(each) >= capacity then
      if not r then redis.call('ZREM', KEYS[2], each) end
    elseif r.lease_end > now then
      redis.call('ZADD', KEYS[2], r.lease_end, each)
    else
      local its_rank, low = rank_of(r)
      if its_rank < rank or (its_rank == 4 and rank == 4 and low < mark) then
        chosen, before, rank, mark = each, r, its_rank, low
      end
      if rank == 1 then break end
    end
  end
  if rank > (is_open() and 1 or 2) then
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
  -- all that it looked at are out of reach: the next claim looks at others
  local passed = rank == 4 and #free == LOOKED_AT and free or {}
  for _, each in ipairs(passed) do redis.call('ZADD', KEYS[2], 'XX', 'GT', now, each) end
  if rank == 4 and mark - usable_from > wait_ms then return { 'behind', tostring(mark - usable_from) } end
  if not chosen then
    if gives_up then count(pool, 'refused') end
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
  if outage > 0 then
    lanes[lane_count] = math.max(pool.outage_floor, before and before.lanes[lane_count] or 0, before and before.outage or 0)
  end
  local fresh = { token = token_hash, renewal_id = first_renewal_id, ['until'] = 0, lanes = lanes, outage = 0,
    before = before and before.token or '', lease_end = 0, claimed = now_text, stats = '', owner = owner }
  local reply = grant(pool, chosen, fresh)
  event(pool, now, 'claimed', chosen, owner, lanes[1], fresh['until'], 'lanes', table.concat(lanes, ','), 'outage', fresh.outage)
  count(pool, 'claims')
  note_peak(pool)
  return reply
end, owner, int('refused', ARGV[15], 0, 1) == 1 and 'lost')
