-- registry_edit: create a registry of shard numbers, let it give new numbers again, or free a number, as a person says.
--
-- KEYS, ARGV[1..2] as in registry
-- ARGV[3] step        string: create | open | free
-- ARGV[4] number      int; create: the lowest number that it gives; open: new numbers are above it, and above all that are
--     known; free: the number
-- ARGV[5] durability  string, to create: detect | assured, whether Redis may lose writes that it acknowledged; or empty
-- ARGV[6] read        string, to open: the incarnation that the person looked at, or empty: any
--
-- Returns created, common fields | exists, common fields: nothing changed
--       | opened, common fields | closed, common fields: Redis may have forgotten more since the person looked
--       | freed, common fields, pool | unknown, common fields: no pool has the number, nothing changed
-- Cost    O(1)

local step = str('step', ARGV[3], '^%l+$', 6)
if step ~= 'create' and step ~= 'open' and step ~= 'free' then bad = bad or 'step' end
local number = int('number', ARGV[4], -1, HIGHEST)
local durability = str('durability', ARGV[5], '^%l*$', 7)
local read = str('read', ARGV[6], '^%x*$', 64)
if step == 'create' then
  if durability ~= 'detect' and durability ~= 'assured' then bad = bad or 'durability' end
  if any_place then bad = bad or 'place' end
end
if bad then return refuse() end

local registry, exists = open_registry()
if not registry then return exists end

if step == 'create' and exists then
  commit(registry)
  return reply_with(registry, 'exists')
elseif step == 'create' then
  registry.durability, registry.closed, registry.next = durability, '', math.max(number, 0)
  commit(registry, 'created', now)
  return reply_with(registry, 'created')
elseif not exists then
  return { 'missing', nonce }
elseif step == 'open' and read ~= '' and read ~= registry.incarnation then
  commit(registry)
  return reply_with(registry, 'closed')
elseif step == 'open' then
  registry.next, registry.closed = math.max(registry.next, number + 1), ''
  commit(registry, 'closed', '')
  return reply_with(registry, 'opened')
end
local r = record_of(number)
if not r then
  commit(registry)
  return reply_with(registry, 'unknown')
end
redis.call('HDEL', KEYS[1], 'n:' .. number, 'p:' .. r.pool)
commit(registry)
return reply_with(registry, 'freed', r.pool)
