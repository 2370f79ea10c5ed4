-- end: give a pool an end, which nothing of it reaches beyond. What starts at its name then, starts there.
--
-- Set once, and never undone: "pool delete" is the earliest end, "pool change-layout" a later one, with the settings that alone
-- may start there. It counts once all copies of the pool have it, as the caller says in a second call: until then nothing
-- reaches beyond it, and nothing starts there. If no process holds a lease and the end is near, the pool is over at once.
-- KEYS, ARGV[1..6] as in pool
-- ARGV[7] next_signature  string, the settings of the pool that starts there; empty: any
-- ARGV[8] at_ms           int, on the Redis clock, 0: the earliest
-- ARGV[9] is_sure         0 | 1, 1: every copy of the pool that can come back has its end
--
-- Returns ends, common fields, the end, the next signature or empty, over 0 | 1
--       | early, common fields, the earliest end: nothing changed; to a sure caller: the pool has no end, Redis lost it
--       | absent, common fields: there is no pool
-- Cost    O(1); for the earliest end, up to SCANNED records are read

local next_signature = str('next_signature', ARGV[7], '^[%w ./;=_:,-]*$', 400)
local at = int('at_ms', ARGV[8], 0, YEAR_5138)
local is_sure = int('is_sure', ARGV[9], 0, 1) == 1
local SCANNED = 10000

return transaction(function(pool)
  local has_end = pool.ends < math.huge
  local latest, is_held, is_unknown, fields = 0, false, pool.records > SCANNED, {}
  local all = is_unknown and {} or redis.call('HGETALL', KEYS[1])
  for i = 1, #all, 2 do
    local is_record = string.find(all[i], '^w:')
    local r = is_record and unpack_record(all[i + 1])
    if r then latest, is_held = math.max(latest, r['until'], r.outage, unpack(r.lanes)), is_held or r.token ~= '' end
    is_unknown = is_unknown or (is_record and not r)
    if string.find(all[i], '^[wt]:') then fields[#fields + 1] = all[i] end
  end
  -- with durability none, something may be lost at any time
  if durability == 'none' then note_loss(pool) end
  -- all that was granted, and all that may have been before a loss
  local earliest = math.max(now, is_unknown and pool.top or latest, pool.floor, outage > 0 and pool.outage_floor or 0)
  if has_end then
    at, next_signature = pool.ends, pool.next_signature
  -- a caller who is sure has set an end: Redis lost it since then
  elseif is_sure or (at ~= 0 and at < earliest) then
    return { 'early', tostring(earliest) }
  end
  at = math.max(at, has_end and 0 or earliest)
  local over = is_past(at) or (not is_held and not is_unknown and at >= latest and at <= horizon(now, ttl))
  put(pool, 'end', at)
  if next_signature ~= '' then put(pool, 'next_signature', next_signature) end
  if is_sure then
    put(pool, 'over', over and 'now' or 'then')
    -- nobody reads its records any more
    for _, field in ipairs(over and fields or {}) do redis.call('HDEL', KEYS[1], field) end
  end
  return { 'ends', tostring(at), next_signature, over and '1' or '0' }
end, nil, 'absent')
