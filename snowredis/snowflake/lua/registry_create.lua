-- registry_create: create a registry of shard numbers that is new, as a person confirms.
--
-- KEYS, ARGV[1..4] as in registry
-- ARGV[5] durability  string: detect | assured, whether Redis may lose writes that it acknowledged
-- ARGV[6] first       int, the lowest number that it gives
--
-- Returns created, common fields | exists, common fields: nothing changed
-- Cost    O(1)

local durability = str('durability', ARGV[5], '^%l+$', 7)
if durability ~= 'detect' and durability ~= 'assured' then bad = bad or 'durability' end
local first = int('first', ARGV[6], 0, HIGHEST)
if any_place then bad = bad or 'place' end
if bad then return refuse() end

local registry, exists = open_registry()
if not registry then return exists end
if exists then
  commit(registry)
  return reply_with(registry, 'exists')
end
registry.durability, registry.closed, registry.next = durability, '', first
commit(registry, 'created', now)
return reply_with(registry, 'created')
