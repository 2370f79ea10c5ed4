-- registry_retire: note that a pool was deleted, whose number stays its own; or free the number, as a person says.
--
-- KEYS, ARGV[1..4] as in registry
-- ARGV[5] number  int
-- ARGV[6] id      hex, of the registration that is retired; empty: free the number, whoever has it
--
-- Returns retired, common fields | freed, common fields, pool
--       | alive, common fields, pool, ms since it was confirmed, owner: nothing changed
--       | unknown, common fields: the number is not given, or not to this registration; nothing changed
-- Cost    O(1)

local number = int('number', ARGV[5], 0, HIGHEST)
local id = str('id', ARGV[6], '^%x*$', 64)
if bad then return refuse() end

local registry, exists = open_registry()
if not registry then return exists end
if not exists then return { 'missing', nonce } end
local r = record_of(number)
if not r or (id ~= '' and r.id ~= id) then
  commit(registry)
  return reply_with(registry, 'unknown')
end
if id ~= '' then
  r.retired = now
  commit(registry, 'n:' .. number, pack_number(r))
  return reply_with(registry, 'retired')
end
if is_alive(r) then
  commit(registry)
  return reply_with(registry, 'alive', r.pool, age(r), r.owner)
end
redis.call('HDEL', KEYS[1], 'n:' .. number, 'p:' .. r.pool)
commit(registry)
return reply_with(registry, 'freed', r.pool)
