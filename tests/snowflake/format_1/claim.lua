-- claim: lease one worker id with all its lanes.
--
-- KEYS, ARGV[1..11] as in common
-- ARGV[12] token       hex, random: names this claim; the same token again answers the same lease
-- ARGV[13] capacity    int, worker ids of the pool
-- ARGV[14] lane_count  int, lanes of a worker id
-- ARGV[15] fit_ms      int, start of the caller's tick: a lane with its mark at or below it is usable at once
-- ARGV[16] wait_ms     int, how much later the best lane may begin than fit_ms
-- ARGV[17] owner       string, JSON: who claims
--
-- Returns ok, common answer, worker, until, lanes (first usable ms of each)
--       | signature, stored signature
--       | settling, common answer, ms to wait: living holders come first after the floor was raised
--       | exhausted, common answer, ms to the next lease end
--       | behind, common answer, ms by which the caller's clock is behind every free lane
-- Cost    O(log pool)

local token = str('token', ARGV[12], '^%x+$', 64)
local capacity = int('capacity', ARGV[13], 1, 4194304)
local lane_count = int('lane_count', ARGV[14], 1, 64)
local fit = math.min(int('fit_ms', ARGV[15], 0, YEAR_5138), capped)
local wait_ms = int('wait_ms', ARGV[16], 0, YEAR_5138)
local owner = str('owner', ARGV[17], '^{[^%c]*}$', 1000)
if bad then return refuse() end

local pool, stored = open_pool()
if not pool then return { 'signature', stored } end
local token_hash = sha(token)

local function grant(worker, r)
  redis.call('ZADD', KEYS[2], r.lease_end, worker)
  commit(pool, 'w:' .. worker, pack_record(r), 't:' .. token_hash, worker)
  return answer(pool, 'ok', worker, tostring(r['until']), table.concat(r.lanes, ','))
end

-- R5: the same claim again, because its answer was lost
local mine = redis.call('HGET', KEYS[1], 't:' .. token_hash)
if mine then
  local r = record_of(mine)
  if r and r.token == token_hash and r.incarnation == pool.incarnation and r.tip == '' then
    r['until'], r.lease_end, r.renewed = math.max(r['until'], capped + ttl), now + ttl, now
    return grant(mine, r)
  end
end

-- R4: nobody is served below the floor. A living holder that has not been heard of yet may be taken up again after
-- another loss, or by another server, that would not know whom this one served
if pool.floor > now then
  commit(pool)
  return answer(pool, 'settling', tostring(pool.floor - now))
end

-- R1: an index that does not hold what the hash says it holds is made anew, in bounded steps
local cursor = redis.call('HGET', KEYS[1], 'rebuild')
if cursor or redis.call('ZCARD', KEYS[2]) ~= pool.records then
  local in_one_step = not cursor
  if in_one_step then redis.call('DEL', KEYS[2]) end
  cursor = cursor or '0'
  for _ = 1, 20 do
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
    commit(pool, 'rebuild', cursor)
    return answer(pool, 'settling', '1')
  end
  -- in several steps, the index may have been lost once more in between: then once more, unless the
  -- same comes out twice, as it does after somebody removed a record by hand
  local have = redis.call('ZCARD', KEYS[2])
  redis.call('HDEL', KEYS[1], 'rebuild')
  if not in_one_step and have ~= pool.records and redis.call('HGET', KEYS[1], 'rebuilt') ~= tostring(have) then
    commit(pool, 'rebuilt', have)
    return answer(pool, 'settling', '1')
  end
  redis.call('HDEL', KEYS[1], 'rebuilt')
  pool.records = have
end

local function low_mark(r)
  local low = math.huge
  for i = 1, #r.lanes do low = math.min(low, math.max(r.lanes[i], r['until'])) end
  return low
end

local chosen, chosen_record, nearest, nearest_record, nearest_mark
local free = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 8)
for _, worker in ipairs(free) do
  local r = record_of(worker)
  if not r or tonumber(worker) >= capacity then
    if not r then redis.call('ZREM', KEYS[2], worker) end
  elseif r.lease_end > now then
    redis.call('ZADD', KEYS[2], r.lease_end, worker)
  else
    local mark = low_mark(r)
    if mark <= fit then
      chosen, chosen_record = worker, r
      break
    elseif not nearest or mark < nearest_mark then
      nearest, nearest_record, nearest_mark = worker, r, mark
    end
  end
end
if not chosen then
  -- worker ids that were adopted after a loss have records without having been counted out here
  while pool.next < capacity and redis.call('HEXISTS', KEYS[1], 'w:' .. pool.next) == 1 do
    pool.next = pool.next + 1
  end
  if pool.next < capacity then
    chosen = tostring(pool.next)
    pool.next = pool.next + 1
  elseif nearest and nearest_mark - fit <= wait_ms then
    chosen, chosen_record = nearest, nearest_record
  end
end
if not chosen then
  commit(pool)
  if nearest then return answer(pool, 'behind', tostring(nearest_mark - fit)) end
  local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  return answer(pool, 'exhausted', tostring(math.max(0, (tonumber(first[2]) or now) - now)))
end

local lanes = {}
local before = chosen_record
if before then
  if before.token ~= '' then
    event('expired', chosen, before.owner, before.lanes[1] or 0, before['until'], before.stats)
    count('expired')
    redis.call('HDEL', KEYS[1], 't:' .. before.token)
  end
else
  pool.records = pool.records + 1
end
for i = 1, lane_count do
  -- R1, R3: at or above the lane's mark, and the floor
  lanes[i] = math.max(before and before.lanes[i] or 0, before and before['until'] or 0, pool.floor)
end
local r = { token = token_hash, incarnation = pool.incarnation, tip = '', ['until'] = capped + ttl, lanes = lanes,
  lease_end = now + ttl, claimed = now, renewed = now, stats = '0,0,0,0,0', owner = owner }
event('claimed', chosen, owner, lanes[1], r['until'], table.concat(lanes, ','))
count('claims')
local reply = grant(chosen, r)
local used = redis.call('ZCOUNT', KEYS[2], '(' .. now, '+inf')
if used > tonumber(redis.call('HGET', KEYS[1], 'peak') or '0') then redis.call('HSET', KEYS[1], 'peak', used) end
return reply
