-- create: create a pool that is new, as a person confirms: no process of that name could make ids within the last
-- outage_reserve. So no worker waits for a floor, and outage lanes are open at once.
--
-- KEYS, ARGV[1..4] as in pool
--
-- Returns created, common fields | exists, common fields: it exists already
-- Cost    O(1)

return transaction(function(pool)
  if not pool.created then return { 'exists' } end
  pool.lost_at, pool.is_new = later_clock, true
  set_floors(pool)
  return { 'created' }
end)
