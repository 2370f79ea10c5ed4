-- registry_take: give a number to a pool, which has to confirm it before the pool is used.
--
-- KEYS, ARGV[1..4] as in registry
-- ARGV[5] pool    string, its name: a name has one number
-- ARGV[6] id      hex, random: names this registration of the pool
-- ARGV[7] wanted  int, the number that a person names for this pool; -1: the next one
-- ARGV[8] owner   string, where the pool is; for people
--
-- Returns taken, common fields, number
--       | closed, common fields: Redis may have forgotten numbers
--       | full, common fields
--       | named, common fields, number, ms since it was confirmed, owner: another pool of this name has that number
--       | used, common fields, pool: the wanted number belongs to that pool
-- Cost    O(1)

local name = str('pool', ARGV[5], POOL_NAME, 64)
local id = str('id', ARGV[6], '^%x+$', 64)
local wanted = int('wanted', ARGV[7], -1, HIGHEST)
local owner = str('owner', ARGV[8], '^[^%c]*$', 400)
if bad then return refuse() end

local registry, exists = open_registry()
if not registry then return exists end
if not exists then return { 'missing', nonce } end
local capacity = 2 ^ tonumber(string.match(registry.signature, ' place=(%d+)/'))
if wanted >= capacity then
  bad = 'wanted'
  return refuse()
end

local number = redis.call('HGET', KEYS[1], 'p:' .. name)
local r = number and record_of(number)
if r then
  -- a number that was never confirmed was never used. Of a confirmed one only a person knows that it is the same pool
  local same = r.id == id or r.confirmed == 0
  if (wanted >= 0 and wanted ~= tonumber(number)) or not (same or (wanted >= 0 and not is_alive(r))) then
    commit(registry)
    return reply_with(registry, 'named', number, age(r), r.owner)
  end
elseif wanted >= 0 then
  number = tostring(wanted)
  local other = record_of(number)
  if other then
    commit(registry)
    return reply_with(registry, 'used', other.pool)
  end
elseif registry.closed ~= '' then
  commit(registry)
  return reply_with(registry, 'closed')
elseif registry.next >= capacity then
  commit(registry)
  return reply_with(registry, 'full')
else
  number = tostring(registry.next)
end
registry.next = math.max(registry.next, tonumber(number) + 1)
if not r or r.id ~= id then r = { id = id, taken = now, confirmed = 0, retired = 0, pool = name, owner = owner } end
commit(registry, 'n:' .. number, pack_number(r), 'p:' .. name, number)
return reply_with(registry, 'taken', number)
