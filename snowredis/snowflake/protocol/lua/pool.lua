-- pool: the beginning of the scripts of a pool, after arguments: the record of a worker id, and the pool itself.
--
-- KEYS[1] pool    hash    snowredis:{POOL}: fields of the pool, "w:<worker id>" -> record, "t:<token hash>" -> worker id;
--                         never expires
-- KEYS[2] leases  zset    snowredis:{POOL}:leases: worker id -> lease end, ms on the Redis clock; an index, rebuilt from the
--                         hash if lost
-- KEYS[3] events  stream  snowredis:{POOL}:events: events of the pool, trimmed; for people only
-- ARGV[1..2] as in arguments; from the signature, the scripts derive all that follows from it
-- ARGV[3] seen       seen_of: state of the pool in the newest reply that the caller got, as it came; empty: none yet
-- ARGV[4] caller_ms  int, the caller's wall clock
--
-- Several scripts take:
--
-- - token: hex, random: names a claim, and proves that the caller holds its lease
-- - lease: a lease as it was granted or renewed last: the holder sends that text as it came. Values separated by commas:
--   worker id; end of the reservation; end of the reservation of the outage lane (at or below the lane's beginning: the lane is
--   not reserved; -: the holder wants none); incarnation; renewal id; the beginning of each lane
-- - pending: hex, random: names a renewal that was sent and that had no reply yet; empty: there is none
-- - owner: owner_of: for people, JSON without control characters, up to 1000 bytes: an object with host, pid, label, and
--   generator, random hex that tells two of one pid apart
-- - stats: for people, five ints separated by commas: ids made since the process started, ids a second, the caller's clock
--   minus the Redis clock in ms, lane in use, how often the caller's clock went back under this lease; 0: not counted
--
-- Returns signature, stored signature
--       | unidentified, reason: durability is detect, and the server has no identity; or "clock": Redis may have lost
--         something, and its clock is so far behind the caller's that no floor can be computed
--       | broken, as in arguments
-- and grants nothing in these cases; else see the header of the script. Each reply is an array of one text, which has a line
-- for each of these; the last line is the nonce. Common fields: time of the call, state of the pool, floor, alarm (empty if
-- the call raised none).
--
-- After the stored signature, " ends_at=MS" says when the pool ends; " unsure=1" that this does not count yet, since some copies
-- of it may not have it; " start=MS end=MS" that it was deleted, and that the pool with the caller's layout, which would start
-- there, could make ids that are not above those of the pool before. Instead of it, "lost=1": the pool that refused the caller
-- before is not there.
--
-- The invariant: each tick of a lane is granted at most once. Nothing that was granted is ever lowered; the one exception,
-- a lane that was never opened, is in release.lua. Readings of the clock are stored as readings (lost_at), and the floor
-- follows from them whenever it is asked for; so a reading that was ahead is replaced.

-- one pattern for all: this runs at every heartbeat. It is also the check of the signature
local lane_bits, worker_bits, tick, epoch, ttl, lead, slack, outage, durability = string.match(signature,
  '^format=1 layout=%d+/[%w_.:,-]+/(%d)/(%d%d?)/%d+;tick_ms=(%d+);epoch_ms=(%d+);[%w;=_]+ datacenter=%d+ ttl_ms=(%d+) '
  .. 'max_clock_lead_ms=(%d+) failover_slack_ms=(%d+) outage_reserve_ms=(%d+) durability=(%l+)$')
local lane_count, capacity = 2 ^ (lane_bits or 9), 2 ^ (worker_bits or 0)
tick, epoch, ttl, lead = tonumber(tick) or 0, tonumber(epoch) or 0, tonumber(ttl) or 0, tonumber(lead) or 0
slack, outage = tonumber(slack) or 0, tonumber(outage) or 0
-- times of at most a day, a month for outage lanes
if #signature > 400 or lane_count > 64 or capacity > 4194304 or math.min(tick, ttl) < 1 or math.max(tick, epoch) > YEAR_5138
  or math.max(ttl, lead, slack, outage / 31) > 864e5 or (outage > 0 and lane_count < 2)
  or (durability ~= 'detect' and durability ~= 'assured' and durability ~= 'none') then bad = bad or 'signature' end

-- The record of a worker id. In Python, snowredis/snowflake/protocol/record.py has the same.
-- Returns the record in a text of pack_record(), or nil for any other text. lanes: where each lane begins. The mark of a lane
-- is the later of that and until; that of the outage lane, the last one, the later of its beginning and outage. The holder
-- has the outage lane if outage is the later one. before: token of the holder before, if that did not release the lease.
-- A list of lanes is never changed in its place, so that its text stays the same; claimed and renewed are texts.
local text_of_lanes = {}
local function unpack_record(text)
  if not text then return nil end
  local token, incarnation, renewal_id, ends, lease_end, lanes, outage, before, claimed, renewed, stats, owner =
    string.match(text, '^(%x*)|([%x-]*)|(%x*)|(%d+)|(%d+)|([%d,]*)|(%d+)|(%x*)|(%d+)|(%d+)|([%d,-]*)|(.*)$')
  -- a text with another number of fields is no record: an owner begins with no field
  if not token or string.match(owner, '^[%w_,-]*|') then return nil end
  local list = {}
  for item in string.gmatch(lanes, '[^,]+') do list[#list + 1] = tonumber(item) end
  text_of_lanes[list] = lanes
  local r = { token = token, incarnation = incarnation, renewal_id = renewal_id, ['until'] = tonumber(ends), lanes = list,
    outage = tonumber(outage), before = before, lease_end = tonumber(lease_end), claimed = claimed, renewed = renewed,
    stats = stats, owner = owner }
  return #list == lane_count and math.max(r['until'], r.outage, r.lease_end, unpack(list)) < 1e14 and r or nil
end
local function pack_record(r)
  return table.concat({ r.token, r.incarnation, r.renewal_id, r['until'], r.lease_end,
    text_of_lanes[r.lanes] or table.concat(r.lanes, ','), r.outage, r.before, r.claimed, r.renewed, r.stats, r.owner }, '|')
end

-- the latest time, and the highest number of an incarnation, that follow from what one caller sends: what is later by some
-- lengths, or has the next numbers, is still valid
local LATEST = 9e13
-- Returns version and incarnation that the caller saw; 0 and an empty text: none.
local function seen_of(name, text)
  local version, incarnation = string.match(text or '', '^(%d+)@(%d+%-%x+)$')
  if text ~= '' and not (number_of(version) and number_in(incarnation)) then bad = bad or name end
  return tonumber(version) or 0, incarnation or ''
end
local seen_version, seen_incarnation = seen_of('seen', ARGV[3])
local caller_ms = int('caller_ms', ARGV[4], 0, LATEST)
-- the ends of what the caller holds, of this pool or of another one: renew and claim know them
local held_until, held_outage, held_incarnation = 0, 0, ''
-- Returns the incarnation in which the caller saw the pool, or was granted something; or an empty text.
local function known_incarnation() return seen_incarnation ~= '' and seen_incarnation or held_incarnation end

-- step 1, grant: a clock that is ahead cannot raise marks above this
-- Step 3, lose: the Redis clock may be behind, too
local capped, later_clock = math.min(caller_ms, now + lead), math.max(now, caller_ms)
-- Returns a time at which everything of this *length* has ended that any server of this pool had granted by *at*.
local function horizon(at, length) return at + length + lead + slack end
-- Returns whether two clocks show a later time: one that is ahead ends nothing.
local function is_past(time) return time <= math.min(now, caller_ms + lead + ttl) end
-- Step 3, lose: sets both floors. Nothing begins before the end of the pool before, nor before all that may have been lost
-- has ended. If a person said that nothing was, nothing begins before the moment at which the person said so.
local function set_floors(pool)
  local at = pool.lost_at
  pool.floor = math.max(pool.start, pool.is_new and at or horizon(at, ttl))
  pool.outage_floor = math.max(pool.start, pool.is_new and at or horizon(at, outage))
end

local function sha(text) return redis.sha1hex and redis.sha1hex(text) or text end
-- Returns the hash of a token, which is all that is stored of it.
local function token_of(name, text) return sha(str(name, text, '^%x+$', 64)) end
local function stats_of(name, text) return str(name, text, '^[%d,-]+$', 120) end

-- the worker id that renew and release are about: its record is read with the pool; the beginning of each lane as the holder
-- has it; and whether the caller wants the outage lane
local worker, held_lanes, has_lane = '', {}, false
-- Reads the lease of a caller of renew or release, with one pattern. Returns its renewal id.
local function lease_of(name, text)
  local id, ends, outage_ends, incarnation, renewal_id, lanes =
    string.match(text or '', '^(%d+),(%d+),(%d*%-?),(%d+%-%x+),(%x+),([%d,]+)$')
  for each in string.gmatch(lanes or '', '%d+') do held_lanes[#held_lanes + 1] = tonumber(each) end
  worker, held_until, held_outage = tostring(tonumber(id) or 0), tonumber(ends) or 0, tonumber(outage_ends)
  has_lane, held_outage, held_incarnation = held_outage ~= nil, held_outage or 0, incarnation or ''
  if not id or #text > 1400 or tonumber(id) >= capacity or #held_lanes ~= lane_count or not (has_lane or outage_ends == '-')
    or not (incarnation == seen_incarnation or number_in(incarnation))
    or math.max(held_until, held_outage, unpack(held_lanes)) > LATEST then bad = bad or name end
  return renewal_id
end
-- Returns the record in *text*, nil if there is none, or nil and the reply "broken" if it is not valid.
local function record_in(text, of_worker)
  local r = unpack_record(text)
  if text and not r then return nil, broken('w:' .. of_worker, text) end
  return r
end
-- step 2, extend: returns true for a renewal that follows the newest one, and for the newest one repeated.
local function in_chain(r, renewal_id, pending) return r.renewal_id == renewal_id or r.renewal_id == pending end

-- Adds field, value pairs to what commit() writes.
local function put(pool, ...)
  for _, each in ipairs({ ... }) do pool.fields[#pool.fields + 1] = each end
end
-- Adds to what is written after the state, for people only: an event, with field, value pairs that only this kind has
-- (lanes, stats, times, or the code of a reason, record.py); or the name of a counter.
local function event(pool, at, kind, of_worker, owner, from, to, ...)
  pool.later[#pool.later + 1] = { 'event', kind, 'worker', of_worker, 'owner', owner, 'from', from, 'until', to, 'at', at, ... }
end
local function count(pool, what) pool.later[#pool.later + 1] = what end
-- Adds the event of a lease that ended *at* that time, and the end of its outage lane.
local function event_of_end(pool, at, kind, of_worker, r, outage_until)
  event(pool, at, kind, of_worker, r.owner, r.lanes[1], r['until'], 'stats', r.stats, 'claimed', r.claimed, 'renewed',
    r.renewed, 'outage', outage_until)
end
-- Adds that a lease ended without a release, unless sweep() did; before its record is changed. An outage lane that was not
-- open yet does not count.
local function note_end(pool, of_worker, r)
  if r.token == '' or r.lease_end <= math.min(pool.swept, now) or r.lease_end > now then return end
  event_of_end(pool, r.lease_end, 'expired', of_worker, r, r.lanes[#r.lanes] <= r['until'] and r.outage or 0)
  count(pool, 'expired')
end
-- Adds that the holder of a lease goes on, although that had ended.
local function note_return(pool, of_worker, r)
  note_end(pool, of_worker, r)
  event(pool, now, 'returned', of_worker, r.owner, r.lanes[1], r['until'], 'ended', r.lease_end)
  count(pool, 'returned')
end

-- The first digits after the dash are the pool's: made with it, the same after a loss if a client knew them.
local function id_of(incarnation) return string.match(incarnation, '^%d+%-(%x%x%x%x%x%x%x%x)') end
-- Step 3, lose: something may be lost. It counts as noticed now, whenever it happened: clients may have been sent here only
-- now. The later of both clocks, since that of Redis may be behind.
local function note_loss(pool)
  pool.lost_at, pool.is_new = math.max(pool.lost_at, later_clock), false
  set_floors(pool)
end
-- Begins a new incarnation.
local function begin_incarnation(pool, reason, lost)
  if lost then note_loss(pool) end
  pool.incarnation = math.max(now, (number_in(pool.incarnation) or 0) + 1,
    math.min(LATEST, number_in(seen_incarnation) or 0) + 1)
    .. '-' .. (id_of(pool.incarnation) or id_of(known_incarnation()) or string.sub(nonce, 1, 8)) .. string.sub(nonce, 9, 16)
  pool.raised = reason
end
-- Notes that processes with leases that were granted before this moment, or lost, may use times up to the floors.
local function note_alarm(pool, from)
  local to = math.max(horizon(now, ttl), horizon(now, outage))
  pool.alarm = table.concat({ 'ids-may-repeat', from, to }, ' ')
  event(pool, now, 'alarm', -1, '', from, to, 'reason', 'ids-may-repeat')
  count(pool, 'alarms')
  put(pool, 'alarm', pool.alarm)
end
-- Returns the reason if Redis may have lost something: step 3.
local function loss_of(pool, stored, run_id)
  if not stored then return 'no-pool' end
  if durability == 'detect' and run_id ~= pool.run_id then
    -- the first part is that of the process; the second changes when a first replica is attached, too: see identity
    return run_id and string.match(run_id, '^%x+') == string.match(pool.run_id, '^%x+') and 'other-history' or 'other-server'
  end
  local is_older = seen_version > pool.version
  if seen_incarnation ~= pool.incarnation then
    is_older = (number_in(seen_incarnation) or 0) > number_in(pool.incarnation)
  end
  if is_older then
    note_alarm(pool, pool.last)
    return 'rolled-back'
  end
  -- the caller holds something of another pool of this name that the floors do not cover
  local known = known_incarnation()
  local is_foreign = known ~= pool.incarnation and (id_of(known) or '') ~= id_of(pool.incarnation) and known ~= ''
  if is_foreign and (held_until > pool.floor or held_outage > pool.outage_floor) then
    note_alarm(pool, math.max(0, math.max(held_until - ttl, held_outage - outage) - lead))
    return 'other-pool'
  end
end

-- Returns the lowest id at or above a time in the layout of a signature, as a double: it is exact, the bits below are 0.
local function lowest_id(of_signature, at)
  local bits, fields, tick_ms, epoch_ms =
    string.match(of_signature, 'layout=(%d+)/([^;]+);tick_ms=(%d+);epoch_ms=(%d+)')
  local below = string.match(of_signature, ';gene_bits=(%d+)') or 0
  for width in string.gmatch((fields or '') .. '/', '(%d+)[,/]') do below = below + width end
  return math.min(2 ^ (bits or 0), math.max(0, math.ceil((at - (epoch_ms or 0)) / (tick_ms or 1)))) * 2 ^ below
end
-- Reads the pool, prepares a new one if it does not exist or has ended, and notices losses. Returns the pool, or nil and the
-- reply of the script. Writes nothing: commit() does. may_lose: the script counts on a loss, wherever one may go unnoticed.
local function open_pool(may_lose)
  local v = redis.call('HMGET', KEYS[1], 'signature', 'incarnation', 'run_id', 'version', 'start', 'lost_at', 'is_new',
    'end', 'over', 'records', 'next', 'swept', 'last', 'top', 'w:' .. worker)
  local wrong
  local function stored(name, text)
    local n = not v[1] and not text and 0 or number_of(text)
    if not n then wrong = wrong or broken(name, text) end
    return n or 0
  end
  -- the end of a pool: nothing of it reaches beyond, and what starts then starts there
  local ends = v[8] and stored('end', v[8]) or math.huge
  local over = v[1] and (v[9] == 'now' or v[9] == 'then' and is_past(ends))
  if v[1] and not over and v[1] ~= signature then
    -- a hint for people
    return nil, { 'signature', v[1] .. (v[8] and ' ends_at=' .. v[8] .. (v[9] and '' or ' unsure=1') or '') }
  end
  -- a pool with another layout starts now, if all its ids are above all that the pool before could make
  local start = ends
  if over and string.match(v[1], 'layout=%S+') ~= string.match(signature, 'layout=%S+') then
    start = math.max(ends, now)
    if lowest_id(signature, start) < lowest_id(v[1], ends) then
      return nil, { 'signature', v[1] .. ' start=' .. start .. ' end=' .. ends }
    end
  end
  local pool = { incarnation = v[2] or '', version = stored('version', v[4]), start = stored('start', v[5]),
    lost_at = stored('lost_at', v[6]), is_new = v[7] == '1', ends = over and math.huge or ends,
    records = stored('records', v[10]), next = stored('next', v[11]), swept = stored('swept', v[12]),
    last = math.min(stored('last', v[13]), now), top = stored('top', v[14]), run_id = '', fields = {}, later = {},
    is_stuck = ends <= now and not over, record = not over and v[15] }
  local is_known = pool.incarnation ~= '' and pool.incarnation == seen_incarnation
  if v[1] and not is_known and not number_in(pool.incarnation) then wrong = wrong or broken('incarnation', v[2]) end
  if wrong then return nil, wrong end
  -- the Redis clock was ahead when this was written: it counts as noticed now
  if pool.lost_at > later_clock + lead + ttl then pool.lost_at, pool.changed = later_clock, true end
  set_floors(pool)
  if durability == 'detect' then
    local id, reason = identity()
    if not id then return nil, { 'unidentified', reason } end
    pool.run_id = id
  end
  local reason = loss_of(pool, v[1], v[3])
  -- a floor by this clock could be too low, and by that of the caller too late, which for an end is for good
  if (reason or may_lose) and caller_ms > now + lead + ttl then return nil, { 'unidentified', 'clock' } end
  if reason then begin_incarnation(pool, reason, true) end
  if over then
    -- all that was granted has ended, or no process holds it
    pool.left, pool.start, pool.records, pool.next, pool.swept = v[1], math.max(pool.start, start), 0, 0, now
    set_floors(pool)
    begin_incarnation(pool, 'ended', false)
  end
  pool.created = (over or not v[1]) and now
  return pool
end

-- the length at which the stream of events is trimmed
local MAX_EVENTS = 20000
-- A lease end that is later was written while the Redis clock was ahead: no server can have granted it by now.
local latest_end = now + slack + ttl
-- Writes which leases ended since the last time, and lowers lease ends that are too late; a claim may come much later. Not
-- before the floor has passed: until then, leases whose renewals Redis forgot are adopted. Not in an incomplete index. At most
-- AT_ONCE of them; in a busy pool, not in each script.
local AT_ONCE, SWEEP_AGAIN_MS = 100, 200
local function sweep(pool)
  if pool.floor > now or (now >= pool.swept and now - pool.swept < SWEEP_AGAIN_MS) then return end
  if redis.call('ZCARD', KEYS[2]) ~= pool.records then return end
  local beyond = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. latest_end, '+inf', 'LIMIT', 0, AT_ONCE)
  for _, each in ipairs(beyond) do
    local r = unpack_record(redis.call('HGET', KEYS[1], 'w:' .. each))
    if r then
      r.lease_end = math.min(r.lease_end, latest_end)
      redis.call('HSET', KEYS[1], 'w:' .. each, pack_record(r))
    end
    redis.call('ZADD', KEYS[2], r and r.lease_end or now, each)
  end
  local since = '(' .. math.min(pool.swept, now)
  local ended = redis.call('ZRANGEBYSCORE', KEYS[2], since, now, 'WITHSCORES', 'LIMIT', 0, AT_ONCE)
  local swept = now
  if #ended == 2 * AT_ONCE then
    -- there may be more: they are next, but for those with the same end
    swept = tonumber(ended[#ended])
    ended = redis.call('ZRANGEBYSCORE', KEYS[2], since, swept, 'WITHSCORES')
  end
  for i = 1, #ended, 2 do
    local r = unpack_record(redis.call('HGET', KEYS[1], 'w:' .. ended[i]))
    if r then note_end(pool, ended[i], r) end
  end
  redis.pcall('HSET', KEYS[1], 'swept', swept)
end

-- Drops the token of a lease that is over.
local function drop_token(token_hash) redis.call('HDEL', KEYS[1], 't:' .. token_hash) end
-- Extends the lease of the holder of *r*, stores its record, and returns the lease as a text that lease_of() reads. Step 1,
-- grant: its end never moves back, and never beyond the end of the pool. Step 4, adopt: a lease end is never lowered, even if
-- the Redis clock went back: the worker id is leased again only after the end of the reservation, less the lead, on the clock
-- of any of the servers.
local function extend(pool, of_worker, r)
  r['until'] = math.max(r['until'], held_until, math.min(capped + ttl, pool.ends))
  local lane_ends = outage > 0 and has_lane and math.min(capped + outage, pool.ends) or 0
  if lane_ends > r.lanes[#r.lanes] then r.outage = math.max(r.outage, lane_ends) end
  r.lease_end = tostring(math.min(latest_end, math.max(r.lease_end, now + ttl)))
  r.renewed, r.incarnation = now_text, pool.incarnation
  -- the latest end of all, or up to a ttl more: it is not written each time
  if math.max(r['until'], r.outage) > pool.top then
    pool.top, pool.changed = math.max(r['until'], r.outage) + ttl, true
  end
  r['until'], r.outage = tostring(r['until']), tostring(r.outage)
  redis.call('ZADD', KEYS[2], r.lease_end, of_worker)
  put(pool, 'w:' .. of_worker, pack_record(r))
  return table.concat({ of_worker, r['until'], has_lane and r.outage or '-', r.incarnation, r.renewal_id,
    text_of_lanes[r.lanes] or table.concat(r.lanes, ',') }, ',')
end
-- Counts the leases that are alive, after the index was written, and keeps the highest count. For people only.
local function note_peak(pool)
  local used = redis.call('ZCOUNT', KEYS[2], '(' .. now, '+inf')
  if used > (number_of(redis.call('HGET', KEYS[1], 'peak')) or 0) then put(pool, 'peak', used) end
end

-- Drops all records of a pool that is over, in which worker ids may mean something else; what people count stays.
local function leave(pool)
  local kept = { 'layouts', 'alarm', 'alarms', 'claims', 'refused', 'releases', 'expired', 'died',
    'returned', 'adopted', 'lost', 'peak', 'mismatches', 'mismatch', 'created' }
  local values = redis.call('HMGET', KEYS[1], unpack(kept))
  -- a user without the right to write is refused here, before anything is dropped
  redis.call('HSET', KEYS[1], 'last', now)
  redis.call('UNLINK', KEYS[1], KEYS[2])
  for i, name in ipairs(kept) do
    if values[i] then put(pool, name, values[i]) end
  end
  local before = values[1] and values[1] .. ' ' or ''
  put(pool, 'layouts', before .. pool.start .. '|' .. (string.match(pool.left, 'layout=([^ ]+)') or ''))
end

-- Writes all of the pool that changed, in one step.
local function commit(pool)
  pool.version = tostring(pool.version + 1)
  if pool.raised then
    event(pool, now, 'floor', -1, '', pool.floor, 0, 'reason', pool.raised)
    table.insert(pool.later, 1, table.remove(pool.later))
    put(pool, 'signature', signature, 'incarnation', pool.incarnation, 'run_id', pool.run_id, 'floor_reason', pool.raised)
    if pool.created then put(pool, 'swept', now) end
    if pool.created and not pool.left then put(pool, 'created', pool.created) end
  end
  if pool.raised or pool.changed then
    put(pool, 'start', pool.start, 'lost_at', pool.lost_at, 'is_new', pool.is_new and '1' or '', 'records', pool.records,
      'next', pool.next, 'top', pool.top)
  end
  put(pool, 'version', pool.version, 'last', now_text)
  redis.call('HSET', KEYS[1], unpack(pool.fields))
  sweep(pool)
  for _, each in ipairs(pool.later) do
    if type(each) == 'table' then
      redis.pcall('XADD', KEYS[3], 'MAXLEN', '~', MAX_EVENTS, '*', unpack(each))
    else
      redis.pcall('HINCRBY', KEYS[1], each, 1)
    end
  end
end

-- Counts a caller with other settings, and remembers the last ones, each once. For people only.
local function note_refused(owner)
  redis.pcall('HINCRBY', KEYS[1], 'mismatches', 1)
  local last = { now .. '|' .. owner }
  for each in string.gmatch(redis.call('HGET', KEYS[1], 'mismatch') or '', '[^\n]+') do
    if #last < 5 and string.match(each, '|(.*)') ~= owner then last[#last + 1] = each end
  end
  redis.pcall('HSET', KEYS[1], 'mismatch', table.concat(last, '\n'))
end

-- Runs a script: opens the pool, lets *body* decide, writes everything, and returns the reply. *body* gets the pool and
-- returns status and fields. A caller with an *owner* that is refused for its settings is counted. If there is no pool and
-- *without* is "absent", that is the reply; if it is "lost", a pool that Redis may have lost is not created: the settings of
-- the caller were not those of the pool.
local function transaction(body, owner, without)
  if bad then return refuse() end
  local pool, reply = open_pool(without == 'absent' and durability == 'none')
  if not pool then
    local is_same = string.match(signature, '^[^ ]+') == string.match(reply[2], '^[^ ]+')
    if owner and reply[1] == 'signature' and is_same then note_refused(owner) end
  elseif pool.is_stuck and without ~= 'absent' then
    reply = { 'signature', signature .. ' unsure=1' }
  elseif pool.created and without == 'lost' and not pool.left then
    reply = { 'signature', 'lost=1' }
  elseif pool.created and without == 'absent' then
    reply = { 'absent' }
  else
    if pool.left then leave(pool) end
    reply = body(pool)
    if reply[1] ~= 'broken' then commit(pool) end
  end
  -- one text of many lines, because a client reads that faster. The nonce shows the caller that it is the reply to its request
  local status = table.remove(reply, 1)
  if pool and status ~= 'signature' and status ~= 'broken' then
    status = table.concat({ status, now_text, pool.version .. '@' .. pool.incarnation, pool.floor, pool.alarm or '' }, '\n')
  end
  if status ~= 'broken' then reply[#reply + 1] = nonce end
  return { status .. '\n' .. table.concat(reply, '\n') }
end
