-- change_layout: plan that the pool has another signature from a moment on, as a person says.
--
-- From then on, scripts refuse the old signature; the first script with the new one drops the records, and raises the
-- floor to a time that no reservation of the old layout reaches.
-- KEYS, ARGV[1..12] as in pool
-- ARGV[13] next_signature  string, the same constants with another layout; the present one: undo the plan
-- ARGV[14] at_ms           int, the moment on the Redis clock
--
-- Returns changing, common fields, the floor that new reservations will start at
--       | absent, common fields: there is no pool, nothing changed
--       | late, common fields: the moment has passed, or is over a year away; nothing changed
--       | kept, common fields: the present signature stays; a plan was undone
-- Cost    O(1)

local next_signature = str('next_signature', ARGV[13], '^[%w ./;=_-]+$', 400)
local at = int('at_ms', ARGV[14], 0, YEAR_5138)

return transaction(function(pool)
  if pool.created then
    pool.unchanged = true
    return { 'absent' }
  end
  if next_signature == signature then
    drop(pool, 'next_signature')
    drop(pool, 'changes_at')
    drop(pool, 'changes_floor')
    return { 'kept' }
  end
  if at <= now or at > now + 366 * 864e5 then return { 'late' } end
  local floor = at + horizon() - now
  put(pool, 'next_signature', next_signature, 'changes_at', at, 'changes_floor', floor)
  return { 'changing', tostring(floor) }
end)
