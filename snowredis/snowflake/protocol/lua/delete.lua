-- delete: give a pool the earliest end, which nothing of it reaches beyond. What starts at its name then, starts there.
--
-- Set once, and never undone. It counts once all copies of the pool have it, as the caller says in a second call: until then
-- nothing reaches beyond it, and nothing starts there. If no process holds a lease and the end is near, the pool is over at once.
--
-- KEYS, ARGV[1..4] as in pool
-- ARGV[5] is_sure  0 | 1, 1: every copy of the pool that can come back has its end
--
-- Returns ends, common fields, the end, over 0 | 1
--       | undone, common fields: the caller is sure, but the pool has no end: Redis lost it, and the pool goes on
--       | absent, common fields: there is no pool
-- Cost    O(1); up to SCANNED records are read

local is_sure = int('is_sure', ARGV[5], 0, 1) == 1
local SCANNED = 10000

return transaction(function(pool)
  local has_end = pool.ends < math.huge
  if is_sure and not has_end then return { 'undone' } end
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
  local at = has_end and pool.ends or earliest
  local over = is_past(at) or (not is_held and not is_unknown and at >= latest and at <= horizon(now, ttl))
  put(pool, 'end', at)
  if is_sure then
    put(pool, 'over', over and 'now' or 'then')
    -- nobody reads its records any more
    for _, field in ipairs(over and fields or {}) do redis.call('HDEL', KEYS[1], field) end
  end
  return { 'ends', tostring(at), over and '1' or '0' }
end, nil, 'absent')
