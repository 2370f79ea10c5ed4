-- delete: delete a pool; a tombstone keeps both floors for the next pool of its name.
--
-- Works on a pool with any settings and on a broken one: the constants are read in the stored signature.
-- KEYS, ARGV[1..6] as in pool; these constants are used where the stored signature is not valid
--
-- Returns deleted, common fields, 1 if constants of the arguments were used
--       | absent, common fields: nothing to delete
-- Cost    O(1) for the server's thread; up to about 1,000 records are read

if bad then return refuse() end
-- a day: how long a tombstone outlives its floor, for hosts whose clocks are behind
local REMEMBERED_MS = 864e5
local guessed = 0
local text = redis.call('HGET', KEYS[1], 'signature')
local function constant(name, given)
  local n = number_of(string.match(text or '', ' ' .. name .. '=(%d+)'))
  if n and n <= 864e5 then return n end
  guessed = 1
  return given
end
ttl, lead = constant('ttl_ms', ttl), constant('max_clock_lead_ms', lead)
skew, slack = constant('redis_skew_ms', skew), constant('failover_slack_ms', slack)
-- left out if it is 0
if text then outage = number_of(string.match(text, ' outage_reserve_ms=(%d+)')) or 0 end
durability = string.match(text or '', ' durability=(%l+)') or 'detect'
guard = string.find(text or '', ' guard_rollbacks=1', 1, true) ~= nil
signature = text

local pool = open_pool()
if pool and not text then
  return transaction(function(absent)
    absent.unchanged = true
    return { 'absent' }
  end)
end
local certain = pool and not pool.raised and durability ~= 'none' and guessed == 0
pool = pool or { floor = number_of(redis.call('HGET', KEYS[1], 'floor')) or 0,
  outage_floor = number_of(redis.call('HGET', KEYS[1], 'outage_floor')) or 0, incarnation = now .. '-' .. nonce,
  version = number_of(redis.call('HGET', KEYS[1], 'version')) or 0,
  top = number_of(redis.call('HGET', KEYS[1], 'top')) or 0,
  outage_top = number_of(redis.call('HGET', KEYS[1], 'outage_top')) or 0 }

-- a record, a token and the fields of the pool
if redis.call('HLEN', KEYS[1]) > 2 * 1000 + 40 then
  certain = false
else
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.find(all[i], '^w:') then
      local r = unpack_record(all[i + 1])
      certain = certain and r
      local last = r and outage > 0 and #r.lanes
      for i, mark in ipairs(r and r.lanes or {}) do
        if i == last then
          pool.outage_floor = math.max(pool.outage_floor, mark, r.outage)
        else
          pool.floor = math.max(pool.floor, mark, r['until'])
        end
      end
    end
  end
end
if not certain then
  -- the ends of reservations are later than that if the clock was ahead
  pool.floor = math.max(pool.floor, horizon(), pool.top)
  pool.outage_floor = math.max(pool.outage_floor, outage_horizon(), pool.outage_top)
end
-- a pool has at most four constants of a day each, and outage_reserve; a higher floor was set by a person
pool.floor = math.min(pool.floor, now + 4 * 864e5)
pool.outage_floor = math.min(pool.outage_floor, now + 3 * 864e5 + outage)

-- a user without the right to write is refused here, before anything is dropped
redis.call('HSET', KEYS[1], 'last', now)
-- UNLINK frees large keys in another thread of the server
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
-- without an expiry time: a Redis that evicts keys evicts those with one first. The next script after its end drops it.
-- A pool that a claim creates has a floor of its own in any case; for one that a person creates, this floor keeps a host
-- whose clock is behind from using times again
redis.call('HSET', KEYS[1], 'floor', pool.floor, 'floor_at', now, 'top', pool.floor, 'incarnation', pool.incarnation,
  'version', pool.version, 'run_id', pool.run_id or '', 'ends', math.max(pool.floor, pool.outage_floor, now) + REMEMBERED_MS)
if outage > 0 then
  redis.call('HSET', KEYS[1], 'outage_floor', pool.outage_floor, 'outage_top', pool.outage_floor, 'lane_names',
    lane_names(text))
end
return { 'deleted', tostring(now), pool.incarnation, tostring(pool.version), tostring(pool.floor), '',
  tostring(guessed), nonce }
