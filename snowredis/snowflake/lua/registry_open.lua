-- registry_open: let a registry give new numbers again, as a person confirms that it knows every number in use.
--
-- KEYS, ARGV[1..4] as in registry
-- ARGV[5] above  int, new numbers are above it; -1: above the highest that is known
-- ARGV[6] read   string, the incarnation that the person looked at, or empty: any
--
-- Returns opened, common fields
--       | closed, common fields: Redis may have forgotten more since the person looked
-- Cost    O(1)

local above = int('above', ARGV[5], -1, HIGHEST)
local read = str('read', ARGV[6], '^[%x-]*$', 64)
if bad then return refuse() end

local registry, exists = open_registry()
if not registry then return exists end
if not exists then return { 'missing', nonce } end
if read ~= '' and read ~= registry.incarnation then
  commit(registry)
  return reply_with(registry, 'closed')
end
registry.next, registry.closed = math.max(registry.next, above + 1), ''
commit(registry, 'closed', '')
return reply_with(registry, 'opened')
