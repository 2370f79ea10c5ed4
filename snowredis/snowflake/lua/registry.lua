-- registry: the beginning of the scripts of a registry of shard numbers, in place of common.
--
-- KEYS[1] registry  hash  fields of the registry, "n:<number>" -> record, "p:<pool>" -> number; never expires
-- ARGV[1] place        string, bits/shift: where in an id the number is; empty: any
-- ARGV[2] incarnation  string, the newest that the caller saw, or empty
-- ARGV[3] version      int, the highest that the caller saw in that incarnation
-- ARGV[4] nonce        hex, random: the last field of the reply, and part of the name of a new incarnation
--
-- Returns place, stored place
--       | unidentified, reason: durability is detect, and the server has no identity
--       | broken, field, its value: no script wrote that value
-- and, from scripts that need a registry, "missing"; changes nothing in these cases; else see the header of the script
--
-- The common fields of other replies are: time of the call, incarnation, version, why it is closed, highest number.
-- A registry is closed, and gives no new numbers, from the moment when Redis may have forgotten some, until a person
-- opens it. A record is "id|taken|confirmed|retired|pool|owner", with times in ms since 1970, 0: never.

local place = str('place', ARGV[1], '^[%d/]*$', 5)
local seen_incarnation = str('incarnation', ARGV[2], '^[%x-]*$', 64)
if seen_incarnation ~= '' then int('incarnation', string.match(seen_incarnation, '^(%d+)%-%x+$'), 0, 9e13) end
local seen_version = int('version', ARGV[3], 0, YEAR_5138)
local nonce = str('nonce', ARGV[4], '^%x+$', 64)

local POOL_NAME = '^[%w_.-]+$'
local HIGHEST = 2 ^ 46
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- a pool whose number was confirmed within this time is alive: its processes confirm it about once a minute
local ALIVE_MS = 180000

-- Returns the record in a text, or nil for any other text.
local function unpack_number(text)
  local id, taken, confirmed, retired, pool, owner = string.match(text or '',
    '^(%x+)|(%d+)|(%d+)|(%d+)|([%w_.-]+)|(.*)$')
  return id and { id = id, taken = tonumber(taken), confirmed = tonumber(confirmed), retired = tonumber(retired),
    pool = pool, owner = owner } or nil
end
local function pack_number(r)
  return table.concat({ r.id, r.taken, r.confirmed, r.retired, r.pool, r.owner }, '|')
end
-- Returns the record of a number; nil if it was never given, or was freed.
local function record_of(number) return unpack_number(redis.call('HGET', KEYS[1], 'n:' .. number)) end
local function is_alive(r) return r.confirmed > now - ALIVE_MS and r.retired == 0 end
local function age(r) return tostring(math.max(0, now - r.confirmed)) end

-- Reads the registry and closes it if Redis may have forgotten numbers. Returns it, and whether it exists; or nil and the
-- reply of the script. Writes nothing: commit() does.
local function open_registry()
  local v = redis.call('HMGET', KEYS[1], 'place', 'durability', 'run_id', 'incarnation', 'version', 'next', 'closed')
  if v[1] and place ~= '' and v[1] ~= place then return nil, { 'place', v[1], nonce } end
  local function raised_at(incarnation) return number_of(string.match(incarnation, '^(%d+)%-%x+$')) end
  local registry = { place = v[1] or place, durability = v[2] or 'detect', run_id = '', incarnation = v[4] or '',
    version = number_of(v[5] or '0'), next = number_of(v[6] or '0'), closed = v[7] or '' }
  for i, name in ipairs({ 'version', 'next' }) do
    if not registry[name] then return nil, { 'broken', name, string.sub(v[4 + i], 1, 60), nonce } end
  end
  local raised, seen_raised = raised_at(registry.incarnation), raised_at(seen_incarnation) or 0
  if v[1] and not raised then return nil, { 'broken', 'incarnation', string.sub(registry.incarnation, 1, 60), nonce } end
  if registry.durability == 'detect' then
    local id, reason = identity()
    if not id then return nil, { 'unidentified', reason, nonce } end
    registry.run_id = id
  end
  local reason
  if not v[1] then
    reason = 'no-registry'
  elseif registry.durability == 'detect' and v[3] ~= registry.run_id then
    reason = 'other-server'
  elseif seen_raised > raised or (seen_incarnation == registry.incarnation and seen_version > registry.version) then
    reason = 'rolled-back'
  end
  if reason then
    registry.closed, registry.changed = reason, true
    registry.incarnation = math.max(now, (raised or 0) + 1, seen_raised + 1) .. '-' .. string.sub(nonce, 1, 16)
  end
  return registry, v[1] and true
end

-- Writes the fields of the registry and the given field, value pairs.
local function commit(registry, ...)
  registry.version = registry.version + 1
  if registry.changed then
    redis.call('HSET', KEYS[1], 'place', registry.place, 'durability', registry.durability, 'run_id', registry.run_id,
      'incarnation', registry.incarnation, 'closed', registry.closed, 'closed_at', now)
  end
  redis.call('HSET', KEYS[1], 'version', registry.version, 'next', registry.next, ...)
end
-- Returns the reply: status, common fields, the given fields, and the nonce, as common does.
local function reply_with(registry, status, ...)
  local reply = { status, tostring(now), registry.incarnation, tostring(registry.version), registry.closed,
    tostring(registry.next - 1), ... }
  reply[#reply + 1] = nonce
  return reply
end
