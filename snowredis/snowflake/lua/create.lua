-- create: create a pool that is new, as a person confirms, so that no worker has to wait for its floor.
--
-- KEYS, ARGV[1..12] as in pool
--
-- Returns created, common fields | exists, common fields: nothing changed
-- Cost    O(1)

if bad then return refuse() end
local pool, refused = open_pool()
if not pool then return refused end
if not pool.created then return reply_with(pool, 'exists') end
-- the floor of a tombstone: reservations of the deleted pool may last, even if this pool is new
pool.floor = pool.kept_floor
commit(pool)
return reply_with(pool, 'created')
