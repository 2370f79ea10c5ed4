-- pool: the beginning of the scripts of a pool, after arguments: the record of a worker id, and the pool itself.
--
-- KEYS[1] pool    hash    fields of the pool, "w:<worker id>" -> record, "t:<token hash>" -> worker id; or a tombstone
-- KEYS[2] leases  zset    worker id -> lease end, ms on the Redis clock; an index, rebuilt from the hash if lost
-- KEYS[3] events  stream  events of the pool, trimmed; for people only
-- ARGV[1..2] as in arguments
-- ARGV[3] constants    string, of the pool, separated by commas: ttl_ms; lead_ms, how far a caller's clock may be ahead of
--                      the Redis clock; skew_ms, how far two Redis servers' clocks may differ; slack_ms, how long a
--                      deposed master may go on answering; outage_ms, for how long the outage lane is reserved, the last
--                      lane of each worker id, 0: there is none; guard 0 | 1, raise the floor after a silence longer than
--                      one ttl; max_events, length at which the event stream is trimmed; and durability, detect | assured
--                      | none, whether Redis may lose writes that it acknowledged
-- ARGV[4] incarnation  incarnation_of: the newest that the caller saw, or empty
-- ARGV[5] version      int, the highest that the caller saw in that incarnation
-- ARGV[6] caller_ms    int, the caller's wall clock
--
-- Returns signature, stored signature
--       | unidentified, reason: durability is detect, and the server has no identity
--       | broken, as in arguments
-- and grants nothing in these cases; else see the header of the script. After the stored signature, " changes_at=MS" says
-- when the caller's becomes the pool's, " changed=1" that the caller's was the pool's, and " lanes=1" that this pool reserves
-- no outage lane of the caller before its end. Instead of it, "lost=1": the pool that refused the caller before is not there
--
-- The common fields of other replies are: time of the call, incarnation, version, floor, alarm.
--
-- Three values come from readings of the Redis clock and only grow: both floors and the ends of leases. If the clock was
-- ahead for a while, they are replaced as soon as they are above what any reservation can have reached. Marks grow, too,
-- but they are as the clocks of processes showed: ids were made up to there. No floor is lowered below top, the latest end
-- of a reservation, or outage_top, that of outage lanes, nor where there were other lanes, or another layout, before.

-- The record of a worker id. In Python, snowredis/snowflake/record.py has the same.
-- Returns the record in a text of pack_record(), or nil for any other text. The mark of a lane is the later of its entry
-- in lanes and until; that of the outage lane is the later of its entry in lanes, the last one, and outage. The holder has
-- the outage lane if outage is the later one. lowered: outage lanes that releases have lowered, as ",<beginning>-<end>".
local function unpack_record(text)
  if not text then return nil end
  local token, incarnation, renewal_id, ends, lease_end, lanes, outage, lowered, claimed, renewed, stats, owner =
    string.match(text, '^(%x*)|([%x-]*)|(%x*)|(%d+)|(%d+)|([%d,]*)|(%d+)([%d,-]*)|(%d+)|(%d+)|([%d,-]*)|(.*)$')
  -- a text with another number of fields is no record: an owner begins with no field
  if not token or string.match(owner, '^[%w_,-]*|') then return nil end
  local list, highest = {}, 0
  for item in string.gmatch(lanes, '[^,]+') do list[#list + 1] = tonumber(item) end
  for i = 1, #list do highest = math.max(highest, list[i]) end
  local r = { token = token, incarnation = incarnation, renewal_id = renewal_id, ['until'] = tonumber(ends),
    lanes = list, outage = tonumber(outage), lowered = lowered, lease_end = tonumber(lease_end),
    claimed = tonumber(claimed), renewed = tonumber(renewed), stats = stats, owner = owner }
  highest = math.max(highest, r['until'], r.outage, r.lease_end, r.claimed, r.renewed)
  return list[1] and highest < 1e14 and r or nil
end
-- Returns a record with *fields*, and without a lease in the others.
local function new_record(fields)
  local r = { token = '', incarnation = '', renewal_id = '', ['until'] = 0, lanes = { 0 }, outage = 0, lowered = '',
    lease_end = 0, claimed = 0, renewed = 0, stats = '', owner = '' }
  for name, value in pairs(fields) do r[name] = value end
  return r
end
local function pack_record(r)
  return table.concat({ r.token, r.incarnation, r.renewal_id, r['until'], r.lease_end, table.concat(r.lanes, ','),
    r.outage .. r.lowered, r.claimed, r.renewed, r.stats, r.owner }, '|')
end

-- one pattern for all: this runs at every heartbeat
local ttl, lead, skew, slack, outage, guard, max_events, durability = string.match(
  str('constants', ARGV[3], '^[%l%d,]+$', 120), '^(%d+),(%d+),(%d+),(%d+),(%d+),([01]),(%d+),(%l+)$')
ttl, lead, skew, slack = tonumber(ttl) or 0, tonumber(lead) or 0, tonumber(skew) or 0, tonumber(slack) or 0
outage, guard, max_events = tonumber(outage) or 0, guard == '1', tonumber(max_events) or 0
-- at most a day, a month for outage lanes
if ttl < 1 or math.max(ttl, lead, skew, slack, outage / 31) > 864e5 or max_events < 1 or max_events > 1e8
  or (durability ~= 'detect' and durability ~= 'assured' and durability ~= 'none') then bad = bad or 'constants' end
local seen_incarnation = ''
-- Returns an incarnation, or an empty text. The one that the caller saw is not checked again.
local function incarnation_of(name, text)
  if text == seen_incarnation or text == '' then return text end
  -- bounded, because the number of the next incarnation is higher and must be valid, too
  if not number_in(str(name, text, '^[%x-]*$', 64), 9e13) then bad = bad or name end
  return text or ''
end
seen_incarnation = incarnation_of('incarnation', ARGV[4])
-- the incarnation of an absent pool, as the caller knows it; renew may know another one
local known_incarnation = seen_incarnation
local seen_version = int('version', ARGV[5], 0, YEAR_5138)
local caller_ms = int('caller_ms', ARGV[6], 0, YEAR_5138)

-- R2: a clock that is ahead cannot raise marks above this
local capped = math.min(caller_ms, now + lead)
-- Returns a time at which every reservation that any server of this pool has granted up to now has ended.
local function horizon() return now + skew + ttl + lead + slack end
-- Returns the same for reservations of outage lanes; 0 if the pool has none.
local function outage_horizon() return outage > 0 and now + skew + outage + lead + slack or 0 end

-- Returns the statistics of a worker: ints, separated by commas.
local function stats_of(name, text) return str(name, text, '^[%d,-]+$', 120) end
local function sha(text) return redis.sha1hex and redis.sha1hex(text) or text end

-- What is written after the state: for people only.
local later = {}
-- Adds an event. The other arguments are field, value pairs that only this kind has: lanes, stats, times, or the code of
-- a reason (codes.py).
local function event_at(at, kind, worker, owner, from, to, ...)
  later[#later + 1] = { 'event', kind, 'worker', worker, 'owner', owner, 'from', from, 'until', to, 'at', at, ... }
end
local function event(...) event_at(now, ...) end
-- Adds the event of a lease that ended *at* that time: the time that it reserved or used, and the end of its outage lane.
local function event_of_end(at, kind, worker, r, from, to, outage_until)
  event_at(at, kind, worker, r.owner, from, to, 'stats', r.stats, 'claimed', r.claimed, 'renewed', r.renewed, 'outage',
    outage_until)
end
-- Adds an event that came before all others of this script.
local function event_first(...)
  event(...)
  table.insert(later, 1, table.remove(later))
end
-- Counts an event.
local function count(what) later[#later + 1] = what end
local function write_later()
  for _, each in ipairs(later) do
    if type(each) == 'table' then
      redis.pcall('XADD', KEYS[3], 'MAXLEN', '~', max_events, '*', unpack(each))
    else
      redis.pcall('HINCRBY', KEYS[1], each, 1)
    end
  end
  later = {}
end

-- the worker id that renew and release are about; its record is read with the pool
local worker
-- Reads the lease that a caller of renew or release has, PresentedLease of protocol.py, with one pattern: worker id,
-- token of the claim, id of the last renewal that was answered or of the claim, id of one that was sent and not
-- answered, or empty, and the ends of its reservation and of its outage lane; at or below its beginning: it has no such
-- lane. Returns all but the worker id, with the token as its hash.
local function lease_of(name, text)
  local id, token, renewal_id, pending, ends, outage_ends = string.match(text, '^(%d+),(%x+),(%x*),(%x*),(%d+),(%d+)$')
  local number, held_until, held_outage = tonumber(id) or 0, tonumber(ends) or 0, tonumber(outage_ends) or 0
  if not id or #text > 240 or number > 4194303 or math.max(held_until, held_outage) > YEAR_5138 then bad = bad or name end
  worker = tostring(number)
  return sha(token or ''), renewal_id, pending, held_until, held_outage
end
-- Returns the record in *text*, nil if there is none, or nil and the reply "broken" if it is not valid.
local function record_in(text, of_worker)
  local r = unpack_record(text)
  if text and not r then return nil, broken('w:' .. of_worker, text) end
  return r
end
-- R5: returns true for a renewal that follows the newest one, and for the newest one repeated.
local function in_chain(r, renewal_id, pending) return r.renewal_id == renewal_id or r.renewal_id == pending end

-- The first digits after the dash are the pool's: made with it, the same after a loss if a client knew them.
local function id_of(incarnation) return string.match(incarnation, '^%d+%-(%x%x%x%x%x%x%x%x)') end
-- Begins a new incarnation; with *lossy*, no new reservation begins before all that may have been lost have ended: from
-- now, not from the start of this server, since clients may have been sent here only now.
local function begin_incarnation(pool, reason, lossy)
  if lossy then
    pool.floor = math.max(pool.floor, horizon())
    pool.outage_floor = math.max(pool.outage_floor, outage_horizon())
    pool.sure_floor = pool.sure_floor and math.max(pool.sure_floor, horizon())
    pool.floor_at = now
  end
  pool.incarnation = math.max(now, (number_in(pool.incarnation) or 0) + 1, (number_in(seen_incarnation) or 0) + 1)
    .. '-' .. (id_of(pool.incarnation) or id_of(known_incarnation) or string.sub(nonce, 1, 8)) .. string.sub(nonce, 9, 16)
  pool.raised = reason
end
-- R10: processes with leases that were granted before this moment, or lost, may use times up to the horizon.
local function note_rollback(pool, from)
  pool.alarm, pool.alarm_from, pool.alarm_until = 'ids-may-repeat', from, math.max(horizon(), outage_horizon())
end

-- Returns what in a signature says which ids there are, and which of their lanes are outage lanes.
local function lane_names(text)
  text = text or ''
  local layout = string.match(text, ' layout=[^ ]+ datacenter=%d+') or ''
  return layout .. (string.find(text, ' outage_reserve_ms=') and ' 1' or '')
end

-- R9: lanes of before, ordinary and outage lanes, may be any lanes from now on. All end before the floor.
local function keep_floor(pool)
  pool.outage_floor = math.max(pool.outage_floor, pool.floor)
  pool.top, pool.outage_top = math.max(pool.top, pool.floor), math.max(pool.outage_top, pool.floor)
end

-- R3, R9, R10. Reads the pool, prepares a new one if it does not exist, and raises the floor if Redis may have lost
-- something. Returns the pool, or nil and the reply of the script. Writes nothing: commit() does.
local function open_pool()
  local v = redis.call('HMGET', KEYS[1], 'signature', 'floor', 'incarnation', 'run_id', 'version', 'last', 'records',
    'next', 'swept', 'floor_at', 'top', 'ends', 'outage_floor', 'outage_top', 'lane_names',
    'next_signature', 'changes_at', 'changes_floor', 'old_signature', 'changes_forced', 'sure_floor',
    'w:' .. (worker or ''))
  -- R9: what a tombstone remembers has passed
  if not v[1] and v[12] and (number_of(v[12]) or 0) <= now then v = {} end
  local next_signature, old_signature = v[1] and v[16], v[19]
  local outage_floor, outage_top = number_of(v[13]) or 0, number_of(v[14]) or 0
  -- R9: the planned floor of the next layout. No outage lane of this one may be in use beyond it, unless a person forced the
  -- plan: a loss raises outage_floor, and the moment of the change moves with it
  local planned, moment = number_of(v[18]) or horizon(), number_of(v[17]) or 0
  local later = v[20] and 0 or math.max(0, math.max(outage_floor, outage_top) - planned)
  planned, moment = planned + later, moment + later
  local due = next_signature and moment <= now
  local current = due and next_signature or v[1]
  if v[1] and current ~= signature then
    -- a hint for people: why the settings differ
    local hint = next_signature == signature and ' changes_at=' .. moment or ''
    if signature == old_signature or (due and signature == v[1]) then hint = ' changed=1' end
    return nil, { 'signature', current .. hint, nonce }
  end
  local wrong
  local function stored(name, text)
    -- a pool has all of these fields, a tombstone some
    local n = not text and not v[1] and 0 or number_of(text)
    if not n then wrong = wrong or broken(name, text) end
    return n or 0
  end
  local pool = { floor = stored('floor', v[2]), incarnation = v[3] or '', version = stored('version', v[5]),
    records = stored('records', v[7]), next = stored('next', v[8]), floor_at = stored('floor_at', v[10]),
    top = stored('top', v[11]), outage_floor = outage_floor, outage_top = outage_top, sure_floor = number_of(v[21]),
    plan = next_signature and not due and planned or math.huge, run_id = '', fields = {}, gone = {},
    -- a record of another layout is not read
    record = not due and v[22] }
  if not v[1] and v[15] ~= lane_names(signature) then
    -- the outage lanes of a deleted pool may be ordinary lanes of this one, and the other way round
    pool.floor = math.max(pool.floor, pool.outage_floor)
    keep_floor(pool)
  end
  -- the end of the leases that sweep() looked at last; the Redis clock may have gone back
  pool.stored_swept = number_of(v[9]) or 0
  pool.swept = math.min(pool.stored_swept, now)
  pool.last = math.min(stored('last', v[6]), now)
  local pool_raised = number_in(pool.incarnation)
  local seen_raised = pool_raised
  if seen_incarnation ~= pool.incarnation then seen_raised = number_in(seen_incarnation) or 0 end
  if not pool_raised and (v[1] or v[3]) then wrong = wrong or broken('incarnation', v[3]) end
  if wrong then return nil, wrong end
  if durability == 'detect' then
    local id, reason = identity()
    if not id then return nil, { 'unidentified', reason, nonce } end
    pool.run_id = id
  end
  if pool.floor_at > now + skew then
    -- the Redis clock was ahead when the floor was raised
    pool.floor, pool.floor_at = math.min(pool.floor, math.max(horizon(), pool.top)), now
    pool.outage_floor = math.min(pool.outage_floor, math.max(outage_horizon(), pool.outage_top))
  end
  -- R9: a tombstone that this very server process wrote has lost nothing
  pool.tombstone = not v[1] and v[12]
  pool.certain = durability == 'assured' or (pool.tombstone and pool.run_id ~= '' and v[4] == pool.run_id)
  pool.floor_before, pool.outage_floor_before = pool.floor, pool.outage_floor
  local reason
  if not v[1] then
    reason = 'no-pool'
  elseif durability == 'detect' and v[4] ~= pool.run_id then
    reason = 'other-server'
  elseif seen_raised > pool_raised or (seen_incarnation == pool.incarnation and seen_version > pool.version) then
    reason = 'rolled-back'
    note_rollback(pool, pool.last)
  elseif guard and now - pool.last > ttl then
    reason = 'silence'
  end
  local lossy = reason ~= nil
  if due then
    -- R9: the marks of the old layout end before this floor
    reason = 'layout-changed'
    pool.floor, pool.floor_at = math.max(pool.floor, planned), now
    pool.sure_floor = nil
    if lossy then
      -- the plan may have been undone since, and outage lanes of the old layout be in use; a lease of the new layout that is
      -- adopted shows that it was not
      pool.sure_floor = math.max(pool.floor, horizon())
      local reserve = number_of(string.match(v[1], ' outage_reserve_ms=(%d+)')) or 0
      pool.floor = math.max(pool.floor, horizon() - ttl + reserve)
    end
    keep_floor(pool)
    pool.left = v[1]
    pool.next, pool.records, pool.stored_swept, pool.swept = 0, 0, now, now
  end
  if reason then
    begin_incarnation(pool, reason, lossy)
    if not v[1] then pool.created = now end
  end
  return pool
end

-- Returns true if the worker id of a lease may have been leased again after a loss that nobody could notice.
local function overdue(r) return durability == 'none' and r.lease_end <= now + skew + slack end

-- Writes that a lease ended without a release, unless sweep() did; before its record is changed. An outage lane that was
-- not open yet does not count. For people only.
local function note_end(pool, worker, r)
  if not r or r.token == '' or r.lease_end <= pool.swept or r.lease_end > now then return end
  local outage_until = r.lanes[#r.lanes] <= r['until'] and r.outage or 0
  event_of_end(r.lease_end, 'expired', worker, r, r.lanes[1], r['until'], outage_until)
  count('expired')
end
-- Lowers lease ends that no server can have granted by now: the Redis clock was ahead when they were written.
local SWEPT_AT_ONCE = 100
local function latest_end() return now + skew + ttl end
local function bound_lease_ends()
  local beyond = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. latest_end(), '+inf', 'LIMIT', 0, SWEPT_AT_ONCE)
  for _, worker in ipairs(beyond) do
    local r = unpack_record(redis.call('HGET', KEYS[1], 'w:' .. worker))
    if r then
      r.lease_end = math.min(r.lease_end, latest_end())
      redis.call('HSET', KEYS[1], 'w:' .. worker, pack_record(r))
    end
    redis.call('ZADD', KEYS[2], r and r.lease_end or now, worker)
  end
end
-- Writes which leases ended since the last script; a claim may come much later. Not before the floor has passed: until
-- then, leases whose renewals Redis forgot are adopted. Not in an incomplete index. At most SWEPT_AT_ONCE of them.
local function sweep(pool)
  if pool.floor > now then return end
  local ended = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. pool.swept, now, 'WITHSCORES', 'LIMIT', 0, SWEPT_AT_ONCE)
  local swept = now
  if #ended == 0 and pool.swept == pool.stored_swept then return end
  if redis.call('ZCARD', KEYS[2]) ~= pool.records then return end
  if #ended == 2 * SWEPT_AT_ONCE then
    -- there may be more with the end of the last one: they are next, unless all have the same end
    swept = tonumber(ended[#ended])
    if tonumber(ended[2]) < swept then
      swept = swept - 1
    else
      ended = redis.call('ZRANGEBYSCORE', KEYS[2], swept, swept, 'WITHSCORES')
    end
  end
  for i = 1, #ended, 2 do
    if tonumber(ended[i + 1]) <= swept then
      local r = unpack_record(redis.call('HGET', KEYS[1], 'w:' .. ended[i]))
      if r and r.lease_end <= swept then note_end(pool, ended[i], r) end
    end
  end
  redis.pcall('HSET', KEYS[1], 'swept', swept)
end

-- Returns code, from and until of the pool's alarm, separated by spaces; empty if there is none.
local function alarm_of(pool)
  return pool.alarm and table.concat({ pool.alarm, pool.alarm_from, pool.alarm_until }, ' ') or ''
end

-- Adds field, value pairs to what commit() writes, and fields to what it drops.
local function put(pool, ...)
  for _, each in ipairs({ ... }) do pool.fields[#pool.fields + 1] = each end
end
local function drop(pool, field) pool.gone[#pool.gone + 1] = field end
-- Counts the leases that are alive, after the index was written, and keeps the highest count. For people only.
local function note_peak(pool)
  local used = redis.call('ZCOUNT', KEYS[2], '(' .. now, '+inf')
  if used > (number_of(redis.call('HGET', KEYS[1], 'peak')) or 0) then put(pool, 'peak', used) end
end
-- Drops a token of the record of *worker*. After a loss, a repeated claim may have got another worker id under the same
-- token, which then is in two records.
local function drop_token(pool, token_hash, worker)
  if redis.call('HGET', KEYS[1], 't:' .. token_hash) == tostring(worker) then drop(pool, 't:' .. token_hash) end
end

-- R10: remembers the last tokens whose leases were released unused: the next lease of that worker id has equal lanes.
local function unused_tokens() return redis.call('HGET', KEYS[1], 'unused') or '' end
local function was_unused(token_hash) return string.find(unused_tokens(), string.sub(token_hash, 1, 16), 1, true) ~= nil end
local function note_unused(pool, token_hash)
  -- 16 of them
  put(pool, 'unused', string.sub(string.sub(token_hash, 1, 16) .. ' ' .. unused_tokens(), 1, 16 * 17))
end

-- Extends the reservation of the holder of *r* in its outage lane, where there is one: from the beginning that lanes says,
-- unless that is later than the end. R2, and R9: at most to the floor of a planned change of the layout.
local function reserve_outage_lane(pool, r)
  if outage == 0 then return end
  local ends = math.min(capped + outage, pool.plan)
  if ends > r.lanes[#r.lanes] then r.outage = math.max(r.outage, ends) end
  pool.outage_top = math.max(pool.outage_top, r.outage)
end

-- R9: lets a pool with another signature, but the same lanes, reserve no outage lane that its predecessor may have granted;
-- the caller has one, and there may be processes with others that do not reach Redis. Returns false if it may have done so.
local function keep_outage_lanes(stored_signature, held_outage)
  if lane_names(stored_signature) ~= lane_names(signature) then return false end
  local v = redis.call('HMGET', KEYS[1], 'outage_floor', 'outage_top')
  local floor, top = number_of(v[1]) or 0, number_of(v[2]) or 0
  if held_outage > floor and top > floor then return false end
  local raised_floor = math.max(floor, outage_horizon())
  local raised = redis.pcall('HSET', KEYS[1], 'outage_floor', raised_floor, 'outage_top', math.max(top, raised_floor))
  return held_outage <= floor or type(raised) == 'number'
end

-- R9: drops all records of the old layout, in which worker ids mean something else, and remembers until when it was used.
local function leave_layout(pool)
  local alive = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. now, '+inf', 'LIMIT', 0, 1000)
  for _, worker in ipairs(alive) do
    local r = unpack_record(redis.call('HGET', KEYS[1], 'w:' .. worker))
    if r then
      event_of_end(now, 'released', worker, r, r.lanes[1], r['until'], r.outage)
      count('releases')
    end
  end
  local kept = { 'created', 'alarm', 'alarms', 'highest_number', 'layouts', 'claims', 'refused', 'releases', 'expired',
    'reclaimed', 'returned', 'adopted', 'lost', 'peak', 'mismatches', 'mismatch' }
  local values = redis.call('HMGET', KEYS[1], unpack(kept))
  -- a user without the right to write is refused here, before anything is dropped
  redis.call('HSET', KEYS[1], 'last', now)
  redis.call('UNLINK', KEYS[1], KEYS[2])
  for i, name in ipairs(kept) do
    if values[i] then put(pool, name, values[i]) end
  end
  local spec = string.match(pool.left, 'layout=([^ ]+)') or ''
  put(pool, 'layouts', (values[5] and values[5] .. ' ' or '') .. pool.floor .. '|' .. spec, 'old_signature', pool.left)
  pool.left = nil
end

-- Writes all of the pool that changed, in one step: a user without the right to do so changes nothing.
local function commit(pool)
  pool.version = pool.version + 1
  local raised, alarm = pool.raised, pool.alarm
  if pool.left then leave_layout(pool) end
  if raised then
    event_first('floor', -1, '', pool.floor, 0, 'reason', raised)
    put(pool, 'signature', signature, 'incarnation', pool.incarnation, 'run_id', pool.run_id, 'floor_reason', raised)
    if pool.created then put(pool, 'created', pool.created, 'ends', '') end
  end
  if alarm then
    event('alarm', -1, '', pool.alarm_from, pool.alarm_until, 'reason', alarm)
    count('alarms')
    put(pool, 'alarm', alarm_of(pool))
  end
  put(pool, 'version', pool.version, 'last', now, 'records', pool.records, 'next', pool.next, 'floor', pool.floor,
    'floor_at', pool.floor_at, 'top', pool.top)
  if pool.sure_floor then put(pool, 'sure_floor', pool.sure_floor) end
  if outage > 0 then put(pool, 'outage_floor', pool.outage_floor, 'outage_top', pool.outage_top) end
  redis.call('HSET', KEYS[1], unpack(pool.fields))
  if #pool.gone > 0 then redis.call('HDEL', KEYS[1], unpack(pool.gone)) end
  pool.fields, pool.gone, pool.raised = {}, {}, nil
  write_later()
  bound_lease_ends()
  sweep(pool)
  write_later()
end

-- Runs a script: opens the pool, lets *body* decide, writes everything, and returns the reply. *body* gets the pool and
-- returns status and fields; it writes with put() and drop(). If it sets pool.unchanged, nothing is written. A caller
-- with an *owner* that is refused for its signature is counted, for people. *held_outage*: the end of the caller's outage
-- lane, of this pool or of one that was here before. Unless *creates*, a pool that Redis may have lost is not created: the
-- settings of the caller were not those of the pool.
local function transaction(body, owner, held_outage, creates)
  if bad then return refuse() end
  local pool, refused = open_pool()
  if not pool then
    if refused[1] == 'signature' and (held_outage or 0) > 0 and keep_outage_lanes(refused[2], held_outage) then
      refused[2] = refused[2] .. ' lanes=1'
    end
    local format = string.match(signature, '^[^ ]+')
    if owner and refused[1] == 'signature' and string.match(refused[2], '^[^ ]+') == format then
      count('mismatches')
      write_later()
      -- the last processes, each once
      local last = { now .. '|' .. owner }
      for each in string.gmatch(redis.call('HGET', KEYS[1], 'mismatch') or '', '[^\n]+') do
        if #last < 5 and string.match(each, '|(.*)') ~= owner then last[#last + 1] = each end
      end
      redis.pcall('HSET', KEYS[1], 'mismatch', table.concat(last, '\n'))
    end
    return refused
  end
  if creates == false and pool.created and not pool.tombstone then return { 'signature', 'lost=1', nonce } end
  -- body must not see the records of another layout
  if pool.left then commit(pool) end
  local reply = body(pool)
  if bad then return refuse() end
  if reply[1] == 'broken' then return reply end
  if not pool.unchanged then commit(pool) end
  local common = { tostring(now), pool.incarnation, tostring(pool.version), tostring(pool.floor), alarm_of(pool) }
  for i, each in ipairs(common) do table.insert(reply, i + 1, each) end
  -- shows the caller that it is the reply to its own request
  reply[#reply + 1] = nonce
  -- one text of many lines, because a client reads that faster
  return { table.concat(reply, '\n') }
end
