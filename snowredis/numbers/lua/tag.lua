-- tag: the beginning of the scripts of numbers, after arguments: what is stored, and what Redis may have forgotten.
--
-- KEYS[1] tag  hash  fields of the tag; "n:PERIOD" -> its next number, "o:PERIOD" -> the loss after which it was opened
-- ARGV[1..2] as in arguments; the signature says which periods there are
-- ARGV[3] database  int, of the server that the caller is connected to
-- ARGV[4] slack_ms  int, how long a deposed master may go on answering, if the tag does not say it
-- ARGV[5] format    string, of the texts; empty for plain numbers
-- ARGV[6] period    string, the text around the numbers of the caller's period; empty for plain numbers
-- ARGV[7] from_ms   int, the caller's period includes all instants from here
-- ARGV[8] until_ms  int, … until here
-- ARGV[9] first_ms  int, and none before this one; 0: it never ends
-- ARGV[10] seen     int, the next number after the highest that the caller saw in this period
-- ARGV[11] settle_ms int, how long after a loss processes may use numbers that they had
--
-- Returns signature, stored signature | unidentified, reason | broken, as in arguments
--       | reformatted, stored format: of a tag that lost something, texts of another format may have been forgotten
-- and changes nothing in these cases; else see the header of the script
--
-- The common fields of other replies are: time of the call, next number of the period. Numbers have up to 16 digits.
--
-- N1, count: a number of a period is handed out once, since its next number only grows.
-- N2, lose: if Redis may have forgotten something, all periods that begin before now + skew + slack are closed. A later
-- one can have no numbers yet.
-- N3, see: what a process saw handed out is not handed out again, and is a loss if Redis does not know it.
-- N4, open: a person opens a period when no deposed master answers and no process uses numbers of before any more.

local MOST = 9e15
-- how far the clocks of two Redis servers may differ
local SKEW_MS = 2500

local database = fmt(int('database', ARGV[3], 0, 1e9))
local default_slack = int('slack_ms', ARGV[4], 0, 864e5)
local format = str('format', ARGV[5], '^[^%c]*$', 800)
local period = str('period', ARGV[6], '^[^%c]*$', 800)
local from_ms = int('from_ms', ARGV[7], 0, 9e13)
local until_ms = int('until_ms', ARGV[8], 0, 9e13)
local first_ms = int('first_ms', ARGV[9], 0, 9e13)
local seen = int('seen', ARGV[10], 0, MOST)
local settle = int('settle_ms', ARGV[11], 0, 864e5)
if bad then return refuse() end

local v = redis.call('HMGET', KEYS[1], 'signature', 'identity', 'database', 'reason', 'format', 'durability', 'slack_ms',
  'start', 'stride', 'maximum', 'closed_until', 'closed_at', 'losses', 'n:' .. period, 'o:' .. period)
local known, reason = v[1], v[4] or ''
if known and known ~= signature then return { 'signature', known, nonce } end
local wrong
-- Returns a stored number; *default* if Redis does not know the tag.
local function stored(name, text, low, default)
  local n = known and number_of(text, MOST) or not known and default
  if not n or n < low then wrong = wrong or broken(name, text) end
  return n or low
end
local slack = stored('slack_ms', v[7], 0, default_slack)
-- without a stride, Redis does not know which numbers it may hand out: other servers may have those in between
local start, stride = stored('start', v[8], 0, 1), stored('stride', v[9], 0, period == '' and 0 or 1)
local maximum = stored('maximum', v[10], 0, MOST)
local closed_until, closed_at = stored('closed_until', v[11], 0, 0), stored('closed_at', v[12], 0, 0)
local losses = stored('losses', v[13], 0, 0)
local next_number = math.max(start, v[14] and stored('n:' .. period, v[14], 0) or 0)
if wrong then return wrong end

-- Returns *n*, or the next higher one of the numbers that this tag hands out.
local function aligned(n)
  if n <= start or stride == 0 then return math.max(n, start) end
  local over = math.fmod(n - start, stride)
  return over == 0 and n or n - over + stride
end
local changes = {}
local function put(name, value)
  changes[#changes + 1] = name
  changes[#changes + 1] = value
end
if closed_at > now then
  -- the clock was ahead when the loss was noticed
  closed_at = now
  put('closed_at', fmt(now))
end
-- Writes all changes at once, and returns the reply.
local function done(status, ...)
  if changes[1] then redis.call('HSET', KEYS[1], unpack(changes)) end
  local reply = { status, fmt(now), fmt(next_number), ... }
  reply[#reply + 1] = nonce
  return reply
end
-- the period hands out numbers
local is_open = stride > 0 and (first_ms >= closed_until or v[15] == fmt(losses))
-- Returns what a tag of this durability stores of the server's identity, or nil and the reply.
local function identified(durability)
  if durability == 'assured' then return '' end
  local id, why = identity()
  if not id then return nil, { 'unidentified', why, nonce } end
  return id
end
-- Closes the tag if Redis may have forgotten something (N2, N3). Returns nil, or the reply that refuses the call.
local function notice()
  local id, refused = identified(v[6])
  if not id then return refused end
  local lost
  if not known or stride == 0 and v[2] ~= id then
    lost = 'no-tag'
  elseif v[3] ~= database then
    -- a copy, whose original hands out the same numbers
    lost = 'other-database'
  elseif v[2] ~= id then
    local run = string.match(v[2] or '', '^%x+')
    lost = run and run == string.match(id, '^%x+') and 'replicated' or 'other-server'
  elseif seen > next_number and is_open then
    lost = 'rolled-back'
  end
  if known and v[5] ~= format then
    if lost or closed_until > 0 then return { 'reformatted', v[5] or '', nonce } end
    put('format', format)
  end
  if lost then
    closed_until, closed_at, losses, reason, is_open = now + SKEW_MS + slack, now, losses + 1, lost, false
    put('signature', signature)
    put('identity', id)
    put('database', database)
    put('reason', lost)
    put('losses', fmt(losses))
    put('closed_until', fmt(closed_until))
    put('closed_at', fmt(now))
  end
  if not known then
    put('durability', 'detect')
    put('slack_ms', fmt(slack))
    put('format', format)
    put('start', '1')
    put('stride', fmt(stride))
    put('maximum', fmt(MOST))
  end
  if seen > next_number then
    next_number = aligned(seen)
    put('n:' .. period, fmt(next_number))
  end
end
-- Returns how long it is until the period can be opened (N4), ms.
local function wait_ms() return is_open and 0 or math.max(0, closed_at + slack + settle - now) end
