-- identity: the identity of the server. The loader puts it in front of common; doctor runs it alone.
--
-- A restart, a failover and a move to another server change the run id or the replication id; each promotion changes the
-- replication id, also of a process that was master before. On a server that lacks one, losses cannot be detected.

-- Returns the identity, or nil and the reason: info-refused | replica | no-run-id | no-replication-id.
local function identity()
  -- Redis 6.2 takes one section a call; 7.0 and later take several and have this number
  local info = redis.REDIS_VERSION_NUM and redis.pcall('INFO', 'server', 'replication')
  if type(info) ~= 'string' then
    local server, replication = redis.pcall('INFO', 'server'), redis.pcall('INFO', 'replication')
    if type(server) ~= 'string' or type(replication) ~= 'string' then return nil, 'info-refused' end
    info = server .. replication
  end
  -- also one that accepts writes: it grants what its master, which does not know of that, grants to others
  local _, role_at = string.find(info, '\nrole:', 1, true)
  local role = role_at and string.match(info, '^[%a-]+', role_at + 1) or ''
  if string.find(role, 'slave', 1, true) or string.find(role, 'replica', 1, true) then return nil, 'replica' end
  -- a plain search: this runs at every heartbeat, and a pattern would take as long as INFO itself
  local function after(name)
    local _, at = string.find(info, name, 1, true)
    local id = at and string.match(info, '^%x+', at + 1)
    return id and #id >= 16 and string.find(id, '[^0]') and id
  end
  local run_id = after('run_id:')
  if not run_id then return nil, 'no-run-id' end
  local replication_id = after('master_replid:')
  if not replication_id then return nil, 'no-replication-id' end
  return run_id .. '-' .. replication_id
end
