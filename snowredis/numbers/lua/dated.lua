-- dated: hand out the next numbers of a period, or let it be opened; after arguments.
--
-- KEYS[1] tag       hash    fields of the tag; "n:<label>" -> the next number, "o:<label>" -> the loss it was opened after
-- ARGV[1..2] as in arguments; the constants are period, zone and durability
-- ARGV[3] assured   0 | 1, Redis never loses a write that it acknowledged
-- ARGV[4] database  int, of the server that the caller is connected to
-- ARGV[5] skew_ms   int, how far two Redis servers' clocks may differ
-- ARGV[6] slack_ms  int, how long a deposed master may go on answering
-- ARGV[7] action    string: take | open | create
-- ARGV[8] label     string, the caller's period
-- ARGV[9] from_ms   int, the caller's period includes all instants from here
-- ARGV[10] until_ms int, … until here
-- ARGV[11] first_ms int, and none before this one
-- ARGV[12] count    int, how many numbers the caller needs; with open: the next number
-- ARGV[13] maximum  int, the highest number of a period
-- ARGV[14] seen     int, the next number after the highest that the caller saw in this period
-- ARGV[15] settle_ms int, how long after a loss processes may use numbers that they had
-- ARGV[16] format   string, of the texts; for people
--
-- Returns granted, common fields, first, until: these numbers are the caller's
--       | opened, common fields, 1: the period hands out numbers from next on; with create: the tag is new
--       | exists, common fields: create did nothing
--       | other, common fields: it is another period now
--       | shut, common fields, reason, since, wait: since this time, ms, later periods are open; this one can be opened in wait ms
--       | settling, common fields, ms to wait: a deposed master may hand out numbers, and processes use those that they had
--       | exhausted, common fields, left: fewer than needed are left; none was handed out
--       | past, common fields: the period is over so long that its numbers are forgotten
--       | signature, stored signature | unidentified, reason | broken, as in arguments
-- The common fields are: time of the call, nothing, next number of the period, nothing.
-- Cost    O(1); O(periods) at the first number of one
--
-- Times are ms since 1970. D1: a number of a label is handed out once, since its counter only grows. D2: if Redis may have
-- forgotten something, all labels that begin before now + skew + slack are closed: a later one can have no numbers yet.

local MOST_LABELS = 100

local assured = int('assured', ARGV[3], 0, 1) == 1
local database = fmt(int('database', ARGV[4], 0, 1e9))
local skew = int('skew_ms', ARGV[5], 0, 864e5)
local slack = int('slack_ms', ARGV[6], 0, 864e5)
local action = str('action', ARGV[7], '^%l+$', 10)
local label = str('label', ARGV[8], '^[%dT-]+$', 20)
local from_ms = int('from_ms', ARGV[9], 0, 9e13)
local until_ms = int('until_ms', ARGV[10], 0, 9e13)
local first_ms = int('first_ms', ARGV[11], 0, 9e13)
local count = int('count', ARGV[12], 1, 1e14)
local maximum = int('maximum', ARGV[13], 1, 1e14)
local seen = int('seen', ARGV[14], 1, 2e14)
local settle = int('settle_ms', ARGV[15], 0, 864e5)
local format = str('format', ARGV[16], '^[^%c]*$', 400)
if bad then return refuse() end

local v = redis.call('HMGET', KEYS[1], 'signature', 'identity', 'closed_until', 'reason', 'trimmed', 'n:' .. label,
  'o:' .. label, 'database')
local known, next_field = v[1], v[6]
if known and known ~= signature then return { 'signature', known, nonce } end
local closed_until, stored_next = number_of(v[3] or '0'), number_of(v[6] or '1', 2e14)
if not closed_until then return broken('closed_until', v[3]) end
if not stored_next then return broken('n:' .. label, v[6]) end
local reason, trimmed = v[4] or '', v[5] or ''
local id = ''
if not assured then
  local why
  id, why = identity()
  if not id then return { 'unidentified', why, nonce } end
end

-- what the caller saw handed out is not handed out again
local next_number = math.max(stored_next, seen)
local function done(status, ...)
  local reply = { status, fmt(now), '', fmt(next_number), '', ... }
  reply[#reply + 1] = nonce
  return reply
end

if action == 'create' then
  local used = known and reason ~= 'no-tag'
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    used = used or string.sub(name, 1, 2) == 'n:'
  end
  if used then return done('exists') end
  redis.call('HSET', KEYS[1], 'signature', signature, 'identity', id, 'database', database, 'closed_until', '0',
    'reason', '', 'trimmed', '')
  return done('opened', '1')
end

-- its counter was forgotten: Redis' clock went back over many periods
local is_past = label <= trimmed
if is_past then seen, next_number = 1, stored_next end
-- D2
local lost
if not known then
  lost = 'no-tag'
elseif v[8] ~= database then
  -- a copy, whose original hands out the same numbers
  lost = 'other-database'
elseif not assured and v[2] ~= id then
  local run = string.match(v[2] or '', '^%x+')
  lost = run and run == string.match(id, '^%x+') and 'replicated' or 'other-server'
elseif seen > stored_next then
  lost = 'rolled-back'
end
if lost then
  closed_until, reason = now + skew + slack, lost
  redis.call('HSET', KEYS[1], 'signature', signature, 'identity', id, 'database', database, 'closed_until',
    fmt(closed_until), 'reason', lost, 'closed_at', fmt(now), 'trimmed', trimmed)
end
if next_number > stored_next then
  redis.call('HSET', KEYS[1], 'n:' .. label, fmt(next_number))
  next_field = true
end
if now < from_ms or now >= until_ms then return done('other') end
if is_past then return done('past') end

-- Writes the next number of the label, and forgets the oldest label if there are many.
local function keep(value)
  redis.call('HSET', KEYS[1], 'n:' .. label, fmt(value))
  if next_field then return end
  redis.call('HSET', KEYS[1], 'format', format)
  local labels = {}
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(name, 1, 2) == 'n:' then labels[#labels + 1] = string.sub(name, 3) end
  end
  if #labels <= MOST_LABELS then return end
  table.sort(labels)
  redis.call('HSET', KEYS[1], 'trimmed', labels[1])
  redis.call('HDEL', KEYS[1], 'n:' .. labels[1], 'o:' .. labels[1])
end

local is_open = first_ms >= closed_until or v[7] == fmt(closed_until)
-- until then, a deposed master may hand out numbers, and processes use those that they got
local wait = 0
if not is_open then
  local closed_at = number_of(redis.call('HGET', KEYS[1], 'closed_at')) or 0
  if closed_at > now then
    -- the clock was ahead when the loss was noticed
    closed_at = now
    redis.call('HSET', KEYS[1], 'closed_at', fmt(now))
  end
  wait = math.max(0, closed_at + slack + settle - now)
end
if action == 'open' then
  if wait > 0 then return done('settling', fmt(wait)) end
  next_number = math.max(next_number, count)
  keep(next_number)
  -- it may be later than it can be, for the same reason: then periods that nobody can have used were closed, too
  closed_until = math.min(closed_until, now + skew + slack)
  redis.call('HSET', KEYS[1], 'closed_until', fmt(closed_until), 'o:' .. label, fmt(closed_until))
  return done('opened', '1')
end
if not is_open then
  return done('shut', reason, fmt(closed_until), fmt(wait))
end
local left = math.max(0, maximum + 1 - next_number)
if left < count then return done('exhausted', fmt(left)) end
-- D1
keep(next_number + count)
return done('granted', fmt(next_number), fmt(next_number + count))
