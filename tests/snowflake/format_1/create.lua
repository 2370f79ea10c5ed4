-- create: make a pool that a person says is really new, so that nobody has to wait for its floor.
--
-- KEYS, ARGV[1..11] as in common
--
-- Returns ok, common answer | exists, common answer: nothing changed
--       | signature, stored signature
-- Cost    O(1)

if bad then return refuse() end
local pool, stored = open_pool()
if not pool then return { 'signature', stored } end
if not pool.created then return answer(pool, 'exists') end
pool.floor = 0
commit(pool)
return answer(pool, 'ok')
