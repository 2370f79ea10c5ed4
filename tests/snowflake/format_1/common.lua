-- common: what every script starts with. The loader puts it in front of claim, renew and release.
--
-- KEYS[1] pool    hash    meta fields, "w:<worker id>" -> record, "t:<token hash>" -> worker id
-- KEYS[2] leases  zset    worker id -> lease end, ms on the Redis clock; an index, rebuilt from the hash if lost
-- KEYS[3] events  stream  what happened, trimmed; nothing rests on it
-- ARGV[1] signature    string, layout and constants of the pool
-- ARGV[2] ttl_ms       int
-- ARGV[3] lead_ms      int, how far a caller's clock may run ahead of Redis'
-- ARGV[4] skew_ms      int, how far two Redis servers' clocks may differ
-- ARGV[5] slack_ms     int, how long a deposed master may go on answering
-- ARGV[6] guard        0 | 1, raise the floor after a silence longer than one ttl
-- ARGV[7] incarnation  string, the newest that the caller saw, or empty
-- ARGV[8] version      int, the highest that the caller saw in it
-- ARGV[9] nonce        hex, random: names a new incarnation if one has to be made
-- ARGV[10] caller_ms   int, the caller's wall clock
-- ARGV[11] max_events  int, length at which the event stream is trimmed
--
-- Times are ms since 1970; they stay exact in Lua's doubles, and tostring() keeps their 13 digits.

-- the most that tostring() writes without an exponent
local YEAR_5138 = 1e14 - 1

local bad
local function int(name, text, low, high)
  if type(text) ~= 'string' or #text > 15 or not string.find(text, '^%-?%d+$') then
    bad = bad or name
    return low
  end
  local n = tonumber(text)
  if n < low or n > high then bad = bad or name end
  return n
end
local function str(name, text, pattern, longest)
  if type(text) ~= 'string' or #text > longest or not string.find(text, pattern) then
    bad = bad or name
    return ''
  end
  return text
end
local function ints(name, text, count)
  local list = {}
  for item in string.gmatch(str(name, text, '^[%d,]*$', 1100), '[^,]+') do
    list[#list + 1] = int(name, item, 0, YEAR_5138)
  end
  if #list ~= count then bad = bad or name end
  return list
end

local signature = str('signature', ARGV[1], '^[%w ./;=_-]+$', 400)
local ttl = int('ttl_ms', ARGV[2], 1, 864e5)
local lead = int('lead_ms', ARGV[3], 0, 864e5)
local skew = int('skew_ms', ARGV[4], 0, 864e5)
local slack = int('slack_ms', ARGV[5], 0, 864e5)
local guard = int('guard', ARGV[6], 0, 1) == 1
local seen_incarnation = str('incarnation', ARGV[7], '^[%x-]*$', 64)
-- bounded, because the next incarnation is numbered above it and has to be readable, too
if seen_incarnation ~= '' then int('incarnation', string.match(seen_incarnation, '^(%d+)%-%x+$'), 0, 9e13) end
local seen_version = int('version', ARGV[8], 0, YEAR_5138)
local nonce = str('nonce', ARGV[9], '^%x+$', 64)
local caller_ms = int('caller_ms', ARGV[10], 0, YEAR_5138)
local max_events = int('max_events', ARGV[11], 1, 1e8)

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
-- R2: a clock that runs ahead cannot push marks further than this
local capped = math.min(caller_ms, now + lead)

local function sha(text) return redis.sha1hex and redis.sha1hex(text) or text end
local function refuse() return redis.error_reply('SNOWREDIS bad argument ' .. bad) end

local function event(what, worker, owner, from, to, detail)
  redis.pcall('XADD', KEYS[3], 'MAXLEN', '~', max_events, '*', 'event', what, 'worker', worker,
    'owner', owner or '', 'from', from or 0, 'until', to or 0, 'detail', detail or '', 'at', now)
end

-- A worker id's record, packed into one hash value. A lane's mark is max(its number in lanes, until).
local function unpack_record(text)
  if not text then return nil end
  local token, incarnation, tip, ends, lease_end, lanes, claimed, renewed, stats, owner = string.match(text,
    '^(%x*)|([%x-]*)|(%x*)|(%d+)|(%d+)|([%d,]*)|(%d+)|(%d+)|([%d,-]*)|(.*)$')
  if not token then return nil end
  local list = {}
  for item in string.gmatch(lanes, '[^,]+') do list[#list + 1] = tonumber(item) end
  return { token = token, incarnation = incarnation, tip = tip, ['until'] = tonumber(ends), lanes = list,
    lease_end = tonumber(lease_end), claimed = tonumber(claimed), renewed = tonumber(renewed),
    stats = stats, owner = owner }
end
local function pack_record(r)
  return table.concat({ r.token, r.incarnation, r.tip, r['until'], r.lease_end, table.concat(r.lanes, ','),
    r.claimed, r.renewed, r.stats, r.owner }, '|')
end
local function record_of(worker) return unpack_record(redis.call('HGET', KEYS[1], 'w:' .. worker)) end

-- R3, R9, R10. Reads the pool, makes it if absent, raises the floor if Redis may have forgotten something.
-- Answers pool, or nil and the stored signature if that is another. Writes nothing: commit() does.
local function open_pool()
  local v = redis.call('HMGET', KEYS[1], 'signature', 'floor', 'incarnation', 'run_id', 'version', 'last', 'records',
    'next')
  if v[1] and v[1] ~= signature then return nil, v[1] end
  local info = redis.call('INFO', 'server')
  -- a plain search: this runs for every heartbeat, and a pattern takes as long as INFO itself
  local _, at = string.find(info, 'run_id:', 1, true)
  local run_id = at and string.match(info, '^%x+', at + 1) or ''
  -- where masters follow one another, a process may come back as master with another's data; each promotion
  -- changes this
  if slack > 0 then
    run_id = run_id .. '-' .. (string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or '')
  end
  local pool = { floor = tonumber(v[2] or '0'), incarnation = v[3] or '', run_id = run_id,
    version = tonumber(v[5] or '0'), records = tonumber(v[7] or '0'), next = tonumber(v[8] or '0') }
  local last = tonumber(v[6] or '0')
  local function raised_at(incarnation) return tonumber(string.match(incarnation, '^(%d+)') or '0') end
  local pool_raised, seen_raised = raised_at(pool.incarnation), raised_at(seen_incarnation)
  local why, lost_at
  if not v[1] then
    why, lost_at = 'no pool in this Redis', now
  elseif v[4] ~= run_id then
    why, lost_at = 'another server process', now
    -- alone, and the pool is there: whatever was lost was lost before this server started
    -- (uptime is the difference of two times that were cut to seconds: one too many or too few), unless
    -- a client saw a newer pool in this very server: then an old copy was put in its place meanwhile
    local uptime = tonumber(string.match(info, 'uptime_in_seconds:(%d+)') or '0')
    if slack == 0 and seen_raised < now - (uptime + 1) * 1000 - skew then
      lost_at = math.min(now, now - (uptime - 1) * 1000)
    end
  elseif seen_raised > pool_raised or (seen_incarnation == pool.incarnation and seen_version > pool.version) then
    why, lost_at = 'the pool is older than what a client saw', now
    pool.alarm = 'ids may have been repeated between ' .. last .. ' and ' .. now
  elseif guard and now - last > ttl then
    why, lost_at = 'silence of over one ttl', now
  end
  if why then
    pool.floor = math.max(pool.floor, lost_at + skew + ttl + lead + slack)
    pool.incarnation = math.max(now, pool_raised + 1, seen_raised + 1) .. '-' .. string.sub(nonce, 1, 16)
    pool.raised = why
    if not v[1] then pool.created = now end
  end
  return pool
end

-- Writes the pool's meta fields together with the given field, value pairs, in one HSET.
local function commit(pool, ...)
  pool.version = pool.version + 1
  if pool.raised then
    event('floor', -1, '', pool.floor, 0, pool.raised)
    redis.call('HSET', KEYS[1], 'signature', signature, 'floor', pool.floor, 'incarnation', pool.incarnation,
      'run_id', pool.run_id)
    if pool.created then redis.call('HSET', KEYS[1], 'created', pool.created) end
  end
  if pool.alarm then
    event('alarm', -1, '', 0, 0, pool.alarm)
    redis.call('HINCRBY', KEYS[1], 'alarms', 1)
    redis.call('HSET', KEYS[1], 'alarm', pool.alarm)
  end
  redis.call('HSET', KEYS[1], 'version', pool.version, 'last', now, 'records', pool.records, 'next', pool.next, ...)
end
local function count(what) redis.call('HINCRBY', KEYS[1], what, 1) end
local function answer(pool, status, ...)
  return { status, tostring(now), pool.incarnation, tostring(pool.version), tostring(pool.floor), pool.alarm or '', ... }
end
