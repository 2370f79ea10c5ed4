-- registry_number: give a number to a pool, or confirm that a pool has its number.
--
-- KEYS, ARGV[1..2] as in registry
-- ARGV[3] step     string: take | first | again. take: give a number, before the pool is created; first: confirm it, before
--     the pool is used; again: confirm it for a pool that was used, and take it up again if Redis forgot it
-- ARGV[4] pool     string, its name: a name has one number
-- ARGV[5] id       hex, random: names this registration of the pool
-- ARGV[6] number   int, of the pool; to take one: the number that a person names, -1: the next one
-- ARGV[7] highest  int, the highest number that the pool ever saw; -1: none
-- ARGV[8] owner    string, where the pool is; for people
--
-- Returns taken, common fields, number
--       | closed, common fields: Redis may have forgotten numbers, so none is given, or confirmed for the first time
--       | full, common fields
--       | named, common fields, number, owner: another pool of this name has that number
--       | used, common fields, pool: the wanted number belongs to that pool
--       | confirmed, common fields
--       | conflict, common fields, number, pool: the registration that the registry has instead; no pool: it was
--         forgotten before it was confirmed, and another pool of this name may have confirmed it since
-- Cost    O(1)

local step = str('step', ARGV[3], '^%l+$', 5)
if step ~= 'take' and step ~= 'first' and step ~= 'again' then bad = bad or 'step' end
local name = str('pool', ARGV[4], '^[%w_.-]+$', 64)
local id = str('id', ARGV[5], '^%x+$', 64)
local number = int('number', ARGV[6], step == 'take' and -1 or 0, HIGHEST)
local highest = int('highest', ARGV[7], -1, HIGHEST)
local owner = str('owner', ARGV[8], '^[^%c]*$', 400)
if step ~= 'take' and any_place then bad = bad or 'place' end
if bad then return refuse() end

local registry, exists = open_registry()
if not registry then return exists end

local function store(taken, confirmed)
  commit(registry, 'n:' .. number, table.concat({ id, taken, confirmed, name, owner }, '|'), 'p:' .. name, number)
end

-- the number that the registry has under this name, and its record
local named = tonumber(redis.call('HGET', KEYS[1], 'p:' .. name) or nil)
local registered = named and record_of(named)

local function take()
  local capacity = 2 ^ tonumber(string.match(registry.signature, ' place=(%d+)/'))
  if number >= capacity then
    bad = 'number'
    return refuse()
  end
  -- a number that was never confirmed was never used
  if registered and (registered.id ~= id and registered.confirmed > 0 or number >= 0 and number ~= named) then
    commit(registry)
    return reply_with(registry, 'named', tostring(named), registered.owner)
  end
  local other = not registered and number >= 0 and record_of(number)
  if other then
    commit(registry)
    return reply_with(registry, 'used', other.pool)
  end
  if registry.closed ~= '' then
    commit(registry)
    return reply_with(registry, 'closed')
  end
  if not registered and number < 0 and registry.next >= capacity then
    commit(registry)
    return reply_with(registry, 'full')
  end
  if number < 0 then number = registered and named or registry.next end
  registry.next = math.max(registry.next, number + 1)
  if registered and registered.id == id then commit(registry) else store(now, 0) end
  return reply_with(registry, 'taken', tostring(number))
end

local function confirm()
  -- only a registry that forgot numbers has given fewer than a pool has seen
  if registry.closed == '' and math.max(number, highest) >= registry.next then close_registry(registry, 'rolled-back') end
  registry.next = math.max(registry.next, number + 1, highest + 1)
  local first, r = step == 'first', record_of(number)
  local mine = r and r.pool == name and r.id == id
  local other = named ~= number and registered
  -- what nobody knows is taken up only if it was confirmed before; a number that was not used yields to one that was
  local yields = not first
  if r then yields = r.confirmed == 0 and (r.pool == name or not first) end
  if not mine and (not yields or (other and other.confirmed > 0)) then
    redis.call('HINCRBY', KEYS[1], 'conflicts', 1)
    commit(registry)
    return reply_with(registry, 'conflict', tostring(other and not r and named or number), r and r.pool or other and name or '')
  end
  -- it may have forgotten that the number was confirmed to another pool
  if first and registry.closed ~= '' and not (mine and r.confirmed > 0) then
    commit(registry)
    return reply_with(registry, 'closed')
  end
  store(mine and r.taken or now, now)
  if r and r.pool ~= name then redis.call('HDEL', KEYS[1], 'p:' .. r.pool) end
  if other then redis.call('HDEL', KEYS[1], 'n:' .. named) end
  return reply_with(registry, 'confirmed')
end

if step ~= 'take' then return confirm() end
if not exists then return { 'missing', nonce } end
return take()
