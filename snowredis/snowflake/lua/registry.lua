-- registry: the beginning of the scripts of a registry of shard numbers, after arguments.
--
-- KEYS[1] registry  hash  fields of the registry, "n:<number>" -> record, "p:<pool>" -> number; never expires
-- ARGV[1..2] as in arguments; the signature's place, bits/shift, says where in an id the number is; 0/0: any
--
-- Returns signature, stored signature
--       | unidentified, reason: the server has no identity
--       | broken, as in arguments
-- and, from scripts that need a registry, "missing"; changes nothing in these cases; else see the header of the script
--
-- The common fields of other replies are: time of the call, why it is closed, highest number. A registry is closed, and
-- gives no new numbers, from the moment when Redis may have forgotten some, until a person opens it. Each time it gets
-- another incarnation. A record is "id|taken|confirmed|pool|owner", with times in ms since 1970, 0: never.

local any_place = string.find(signature, ' place=0/0', 1, true)
local HIGHEST = 2 ^ 46

-- Returns the record of a number; nil if it was never given, or was freed.
local function record_of(number)
  local id, taken, confirmed, pool, owner = string.match(redis.call('HGET', KEYS[1], 'n:' .. number) or '',
    '^(%x+)|(%d+)|(%d+)|([%w_.-]+)|(.*)$')
  return id and { id = id, taken = tonumber(taken), confirmed = tonumber(confirmed), pool = pool, owner = owner } or nil
end

local function close_registry(registry, reason)
  registry.closed, registry.changed, registry.incarnation = reason, true, nonce
end

-- Reads the registry and closes it if Redis may have forgotten numbers. Returns it, and whether it exists; or nil and the
-- reply of the script. Writes nothing: commit() does.
local function open_registry()
  local v = redis.call('HMGET', KEYS[1], 'signature', 'run_id', 'incarnation', 'next', 'closed')
  local of_this_format = v[1] and string.match(v[1], '^[^ ]*') == string.match(signature, '^[^ ]*')
  if v[1] and v[1] ~= signature and not (any_place and of_this_format) then return nil, { 'signature', v[1], nonce } end
  local id, reason = identity()
  if not id then return nil, { 'unidentified', reason, nonce } end
  local registry = { signature = v[1] or signature, run_id = id, incarnation = v[3] or '', next = number_of(v[4] or '0'),
    closed = v[5] or '' }
  if not registry.next then return nil, broken('next', v[4]) end
  if not v[1] then
    close_registry(registry, 'no-registry')
  elseif v[2] ~= id then
    close_registry(registry, 'other-server')
  end
  return registry, v[1] and true
end

-- Writes the fields of the registry and the given field, value pairs.
local function commit(registry, ...)
  if registry.changed then
    redis.call('HSET', KEYS[1], 'signature', registry.signature, 'run_id', registry.run_id, 'incarnation',
      registry.incarnation, 'closed', registry.closed, 'closed_at', now)
  end
  redis.call('HSET', KEYS[1], 'next', registry.next, ...)
end

-- Returns the reply: status, common fields, the given fields, and the nonce, as common does.
local function reply_with(registry, status, ...)
  local reply = { status, tostring(now), registry.closed, tostring(registry.next - 1), ... }
  reply[#reply + 1] = nonce
  return reply
end
