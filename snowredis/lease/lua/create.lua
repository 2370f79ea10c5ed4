-- create: make a pool that a person says is really new, so that nobody has to wait for its floor.
--
-- KEYS, ARGV[1..12] as in common
--
-- Returns created, common answer | exists, common answer: nothing changed
-- Cost    O(1)

if bad then return refuse() end
local pool, refused = open_pool()
if not pool then return refused end
if not pool.created then return answer(pool, 'exists') end
-- what delete left: reservations of the pool before this one may last, whatever a person knows of this one
pool.floor = pool.kept_floor
commit(pool)
return answer(pool, 'created')
