-- registry_confirm: confirm that a pool has its number; take it up again if Redis forgot it.
--
-- KEYS, ARGV[1..4] as in registry
-- ARGV[5] pool     string, its name
-- ARGV[6] id       hex, of its registration
-- ARGV[7] number   int
-- ARGV[8] highest  int, the highest number that the pool ever saw; -1: none
-- ARGV[9] first    0 | 1, 1: it was not confirmed before, so no id was made with it
-- ARGV[10] owner   string, where the pool is; for people
--
-- Returns confirmed, common fields
--       | conflict, common fields, number, pool: the registration that the registry has instead; no pool: it was
--         forgotten before it was confirmed, and another pool of this name may have confirmed it since
-- Cost    O(1)

local name = str('pool', ARGV[5], POOL_NAME, 64)
local id = str('id', ARGV[6], '^%x+$', 64)
local number = int('number', ARGV[7], 0, HIGHEST)
local highest = int('highest', ARGV[8], -1, HIGHEST)
local first = int('first', ARGV[9], 0, 1) == 1
local owner = str('owner', ARGV[10], '^[^%c]*$', 400)
if any_place then bad = bad or 'place' end
if bad then return refuse() end

local registry, exists = open_registry()
if not registry then return exists end
registry.next = math.max(registry.next, number + 1, highest + 1)
local r = record_of(number)
local mine = r and r.pool == name and r.id == id
local named = redis.call('HGET', KEYS[1], 'p:' .. name)
-- the registration that the registry has under this name with another number
local other = named and named ~= tostring(number) and record_of(named)
-- what nobody knows is taken up only if it was confirmed before; a number that was not used yields to one that was
local yields = not first
if r then yields = r.confirmed == 0 and (r.pool == name or not first) end
if not mine and (not yields or (other and other.confirmed > 0)) then
  redis.call('HINCRBY', KEYS[1], 'conflicts', 1)
  commit(registry)
  local holder = r and r.pool or other and name or ''
  return reply_with(registry, 'conflict', other and not r and named or tostring(number), holder)
end
if r and r.pool ~= name then redis.call('HDEL', KEYS[1], 'p:' .. r.pool) end
if other then redis.call('HDEL', KEYS[1], 'n:' .. named) end
r = { id = id, taken = mine and r.taken or now, confirmed = now, retired = 0, pool = name, owner = owner }
commit(registry, 'n:' .. number, pack_number(r), 'p:' .. name, number)
return reply_with(registry, 'confirmed')
