-- registry_open: let a registry give new numbers again, as a person confirms that it knows every number in use.
--
-- KEYS, ARGV[1..4] as in registry
-- ARGV[5] above  int, new numbers are above it; -1: above the highest that is known
--
-- Returns opened, common fields
-- Cost    O(1)

local above = int('above', ARGV[5], -1, HIGHEST)
if bad then return refuse() end

local registry, exists = open_registry()
if not registry then return exists end
if not exists then return { 'missing', nonce } end
registry.next, registry.closed = math.max(registry.next, above + 1), ''
commit(registry, 'closed', '')
return reply_with(registry, 'opened')
