-- delete: forget a pool, but for the floor that the next pool of its name needs.
--
-- Works on a pool of any settings and on a broken one: what holds is read in the stored signature.
-- KEYS, ARGV[1..12] as in common; the constants stand in where the stored signature cannot be read
--
-- Returns deleted, common answer, 1 if constants had to be guessed
--       | absent, common answer: nothing to delete
-- Cost    O(1) for the server's thread; up to about 1,000 records are read

if bad then return refuse() end
-- a day: further behind is no clock that anybody makes ids with
local KEPT_MS = 864e5
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
durability = string.match(text or '', ' durability=(%l+)') or 'detect'
guard = string.find(text or '', ' guard_rollbacks=1', 1, true) ~= nil
signature = text

local pool = open_pool()
if pool and not text then return answer(pool, 'absent') end
local certain = pool and not pool.raised and durability ~= 'none' and guessed == 0
pool = pool or { floor = number_of(redis.call('HGET', KEYS[1], 'floor')) or 0, incarnation = now .. '-' .. nonce,
  version = number_of(redis.call('HGET', KEYS[1], 'version')) or 0 }

-- a record, a token and the fields of the pool
if redis.call('HLEN', KEYS[1]) > 2 * 1000 + 40 then
  certain = false
else
  local all = redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    if string.find(all[i], '^w:') then
      local r = unpack_record(all[i + 1])
      certain = certain and r
      for _, mark in ipairs(r and r.lanes or {}) do pool.floor = math.max(pool.floor, mark, r['until']) end
    end
  end
end
if not certain then pool.floor = math.max(pool.floor, horizon()) end
-- four constants of a day each are the most that a pool can have; further ahead is what somebody typed
pool.floor = math.min(pool.floor, now + 4 * 864e5)

-- UNLINK: large keys are freed beside the server's thread
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3])
redis.call('HSET', KEYS[1], 'floor', pool.floor, 'incarnation', pool.incarnation, 'version', pool.version)
-- the one key with an end. Whoever comes without create waits for a floor of their own in any case; a pool that a person
-- says is new has this one, below which a host whose clock is behind would stamp times that were used
redis.call('PEXPIREAT', KEYS[1], math.max(pool.floor, now) + KEPT_MS)
return answer(pool, 'deleted', tostring(guessed))
