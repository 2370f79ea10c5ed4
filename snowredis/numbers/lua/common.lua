-- common: the beginning of every script of segments, after arguments.
--
-- KEYS[1] tag      hash    fields of the tag, and "c:<client>" -> record of a client
-- KEYS[2] clients  zset    client -> time of its last request, ms on the Redis clock; an index, for trimming only
-- KEYS[3] events   stream  events of the tag, trimmed; for people only
-- ARGV[1..2] as in arguments
-- ARGV[3] assured     0 | 1, Redis never loses a write that it acknowledged
-- ARGV[4] size        int, positions before the range is used up
-- ARGV[5] slack_ms    int, how long a deposed master may go on answering
-- ARGV[6] database    int, of the server that the caller is connected to
-- ARGV[7] max_events  int, length at which the event stream is trimmed
--
-- Returns signature, stored signature
--       | unidentified, reason: the server has no identity
--       | broken, as in arguments
-- and changes nothing in these cases; else see the header of the script
--
-- The common fields of other replies are: time of the call, incarnation, next position, alarm.
-- Positions have up to 16 digits: exact in doubles, but tostring() rounds them.

local MAX_POSITION = 9e15
-- a client that was silent for this long is forgotten
local FORGOTTEN_MS = 864e5
-- ranges that were never handed out by this history, the oldest are dropped
local MOST_GAPS = 20

local assured = int('assured', ARGV[3], 0, 1) == 1
local size = int('size', ARGV[4], 1, MAX_POSITION)
local slack = int('slack_ms', ARGV[5], 0, 864e5)
local database = fmt(int('database', ARGV[6], 0, 1e9))
local max_events = int('max_events', ARGV[7], 1, 1e8)

local function event(kind, ...)
  redis.pcall('XADD', KEYS[3], 'MAXLEN', '~', max_events, '*', 'event', kind, 'at', fmt(now), ...)
end

-- Changes the incarnation, once a script.
local function renew_incarnation(tag)
  if tag.renewed then return end
  tag.renewed = true
  local count = number_in(tag.incarnation, MAX_POSITION) or 0
  tag.incarnation = fmt(math.max(count + 1, now)) .. '-' .. string.sub(nonce, 1, 16)
end
-- S1: hands out nothing from now on. What was handed out by this history ends at *next*.
local function close(tag, reason)
  if tag.reason ~= '' then return end
  tag.reason, tag.closed_at, tag.handed = reason, now, tag.next
  renew_incarnation(tag)
  event('closed', 'reason', reason, 'next', fmt(tag.next))
end
-- Hands out again, from the position *from* or later. This history handed out nothing in between.
local function open(tag, from, how)
  from = math.max(from, tag.next)
  local handed = tag.reason ~= '' and tag.handed or tag.next
  if from > handed then
    local gaps = {}
    for gap in string.gmatch(tag.gaps, '[^,]+') do gaps[#gaps + 1] = gap end
    gaps[#gaps + 1] = fmt(handed) .. '-' .. fmt(from)
    if #gaps > MOST_GAPS then table.remove(gaps, 1) end
    tag.gaps = table.concat(gaps, ',')
  end
  tag.next, tag.opened_from, tag.reason = from, from, ''
  renew_incarnation(tag)
  event('opened', 'how', how, 'next', fmt(from))
end

-- S1, S2. Reads the tag, and closes it if Redis may have lost something. Returns the tag, or nil and the reply. Writes
-- nothing but events: commit() does.
local function read_tag()
  local v = redis.call('HMGET', KEYS[1], 'signature', 'incarnation', 'identity', 'reason', 'gaps', 'next', 'closed_at',
    'handed', 'opened_from', 'trimmed', 'database')
  if v[1] and v[1] ~= signature then return nil, { 'signature', v[1], nonce } end
  local wrong
  local function stored(name, text)
    local n = not v[1] and 0 or number_of(text, MAX_POSITION)
    if not n then wrong = wrong or broken(name, text) end
    return n or 0
  end
  local tag = { signature = signature, incarnation = v[2] or '', identity = '', reason = v[4] or '',
    gaps = v[5] or '', next = stored('next', v[6]), closed_at = stored('closed_at', v[7]),
    handed = stored('handed', v[8]), opened_from = stored('opened_from', v[9]), trimmed = stored('trimmed', v[10]) }
  if wrong then return nil, wrong end
  -- the clock was ahead when the tag was closed
  tag.closed_at = math.min(tag.closed_at, now)
  if not assured then
    local id, reason = identity()
    if not id then return nil, { 'unidentified', reason, nonce } end
    tag.identity = id
  end
  if not v[1] then
    close(tag, 'no-tag')
    return tag
  end
  -- S9: a copy, whose original hands out the same numbers
  if v[11] ~= database then close(tag, 'other-database') end
  if not assured and v[3] ~= tag.identity then
    local run = string.match(v[3] or '', '^%x+')
    local reason = run and run == string.match(tag.identity, '^%x+') and 'replicated' or 'other-server'
    close(tag, reason)
    renew_incarnation(tag)
    -- S8: a deposed master may answer from now on only
    tag.closed_at = now
  end
  return tag
end

-- Writes the fields of the tag and the given field, value pairs.
local function commit(tag, ...)
  redis.call('HSET', KEYS[1], 'signature', tag.signature, 'incarnation', tag.incarnation, 'identity', tag.identity,
    'database', database, 'next', fmt(tag.next), 'reason', tag.reason, 'closed_at', fmt(tag.closed_at), 'handed', fmt(tag.handed),
    'opened_from', fmt(tag.opened_from), 'gaps', tag.gaps, 'trimmed', fmt(tag.trimmed), 'last', fmt(now), ...)
end
-- Returns the reply: status, common fields, the given fields, and the nonce, which shows the caller that it is the reply
-- to its own request.
local function reply_with(tag, status, ...)
  local reply = { status, fmt(now), tag.incarnation, fmt(tag.next), tag.alarm or '', ... }
  reply[#reply + 1] = nonce
  return reply
end
