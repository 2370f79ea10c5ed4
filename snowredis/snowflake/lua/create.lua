-- create: create a pool that is new, as a person confirms, so that no worker has to wait for its floor.
--
-- The outage floor stays raised, since nobody waits for it: a process that does not reach Redis may be in an outage lane of
-- a pool that Redis has lost.
-- KEYS, ARGV[1..6] as in pool
--
-- Returns created, common fields | exists, common fields: it exists already
-- Cost    O(1)

return transaction(function(pool)
  if not pool.created then return { 'exists' } end
  -- the floors of a tombstone: reservations of the deleted pool may last, even if this pool is new
  pool.floor = pool.floor_before
  if pool.certain then pool.outage_floor = pool.outage_floor_before end
  return { 'created' }
end)
