-- change_layout: plan that the pool has another signature from a moment on, as a person says.
--
-- From then on, scripts refuse the old signature; the first script with the new one drops the records, and raises the
-- floor to a time that no reservation of the old layout reaches. Until then, outage lanes are reserved to that floor at most.
-- If Redis loses something before, both move behind the outage lanes that it may have forgotten, unless the plan was forced.
-- KEYS, ARGV[1..6] as in pool
-- ARGV[7] next_signature  string, the same constants with another layout; the present one: undo the plan
-- ARGV[8] at_ms           int, the moment on the Redis clock
-- ARGV[9] force           0 | 1, 1: although processes that do not reach Redis may use an outage lane beyond that floor
--
-- Returns changing, common fields, the floor that new reservations will start at
--       | absent, common fields: there is no pool, nothing changed
--       | late, common fields: the moment has passed, or is over a year away; nothing changed
--       | early, common fields, the first moment that is behind all reservations of outage lanes; nothing changed
--       | kept, common fields: the present signature stays; a plan was undone
-- Cost    O(1)

local next_signature = str('next_signature', ARGV[7], '^[%w ./;=_-]+$', 400)
local at = int('at_ms', ARGV[8], 0, YEAR_5138)
local force = int('force', ARGV[9], 0, 1) == 1

return transaction(function(pool)
  if pool.created then
    pool.unchanged = true
    return { 'absent' }
  end
  if next_signature == signature then
    drop(pool, 'next_signature')
    drop(pool, 'changes_at')
    drop(pool, 'changes_floor')
    drop(pool, 'changes_forced')
    return { 'kept' }
  end
  if at <= now or at > now + 366 * 864e5 then return { 'late' } end
  local floor = at + horizon() - now
  -- R9: what was reserved, and what may have been before a loss
  local reserved = math.max(pool.outage_top, pool.outage_floor)
  if reserved > floor and not force then return { 'early', tostring(at + reserved - floor) } end
  put(pool, 'next_signature', next_signature, 'changes_at', at, 'changes_floor', floor)
  if force then put(pool, 'changes_forced', 1) else drop(pool, 'changes_forced') end
  return { 'changing', tostring(floor) }
end)
