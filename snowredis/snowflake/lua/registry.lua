-- registry: the beginning of the scripts of a registry of shard numbers, after arguments.
--
-- KEYS[1] registry  hash  fields of the registry, "n:<number>" -> record, "p:<pool>" -> number; never expires
-- ARGV[1..2] as in arguments; the signature's place, bits/shift, says where in an id the number is; 0/0: any
-- ARGV[3] incarnation  string, the newest that the caller saw, or empty
-- ARGV[4] version      int, the highest that the caller saw in that incarnation
--
-- Returns signature, stored signature
--       | unidentified, reason: durability is detect, and the server has no identity
--       | broken, as in arguments
-- and, from scripts that need a registry, "missing"; changes nothing in these cases; else see the header of the script
--
-- The common fields of other replies are: time of the call, incarnation, version, why it is closed, highest number.
-- A registry is closed, and gives no new numbers, from the moment when Redis may have forgotten some, until a person
-- opens it. A record is "id|taken|confirmed|retired|pool|owner", with times in ms since 1970, 0: never.

local any_place = string.find(signature, ' place=0/0', 1, true)
local seen_incarnation = str('incarnation', ARGV[3], '^[%x-]*$', 64)
if seen_incarnation ~= '' then int('incarnation', string.match(seen_incarnation, '^(%d+)%-%x+$'), 0, 9e13) end
local seen_version = int('version', ARGV[4], 0, YEAR_5138)

local POOL_NAME = '^[%w_.-]+$'
local HIGHEST = 2 ^ 46
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
  local v = redis.call('HMGET', KEYS[1], 'signature', 'durability', 'run_id', 'incarnation', 'version', 'next', 'closed')
  local of_this_format = v[1] and string.match(v[1], '^[^ ]*') == string.match(signature, '^[^ ]*')
  if v[1] and v[1] ~= signature and not (any_place and of_this_format) then return nil, { 'signature', v[1], nonce } end
  local function raised_at(incarnation) return number_of(string.match(incarnation, '^(%d+)%-%x+$')) end
  local registry = { signature = v[1] or signature, durability = v[2] or 'detect', run_id = '', incarnation = v[4] or '',
    version = number_of(v[5] or '0'), next = number_of(v[6] or '0'), closed = v[7] or '' }
  for i, name in ipairs({ 'version', 'next' }) do
    if not registry[name] then return nil, broken(name, v[4 + i]) end
  end
  local raised, seen_raised = raised_at(registry.incarnation), raised_at(seen_incarnation) or 0
  if v[1] and not raised then return nil, broken('incarnation', registry.incarnation) end
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
    redis.call('HSET', KEYS[1], 'signature', registry.signature, 'durability', registry.durability, 'run_id', registry.run_id,
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
