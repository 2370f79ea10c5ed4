-- open: create a tag, or open one of its periods after a loss, because a person says from where on no number was handed out.
--
-- KEYS, ARGV[1..11] as in tag
-- ARGV[12] action      string: create | open
-- ARGV[13] from_number int, no number from here on was ever handed out; of a new tag, its first number
-- ARGV[14] durability  string: detect | assured; of a new tag
-- ARGV[15] stride      int, the distance of the numbers, of which other servers hand out the ones in between; of a new tag
-- ARGV[16] maximum     int, the highest number; of a new tag
--
-- Returns opened, common fields: the period hands out numbers from next on; with create: the tag is new
--       | exists, common fields: the tag is not created; it exists, or processes saw higher numbers of it
--       | absent, common fields: plain numbers of a tag that Redis does not know are created, and not opened
--       | settling, common fields, wait: the period can be opened in so many ms
--       | other, common fields: Redis' clock shows another period
-- Cost    O(1) to open, O(periods) to create

local action = str('action', ARGV[12], '^%l+$', 10)
local from = int('from_number', ARGV[13], 0, MOST)
local durability = str('durability', ARGV[14], '^%l+$', 10)
local new_stride = int('stride', ARGV[15], 1, 1000)
local new_maximum = int('maximum', ARGV[16], 0, MOST)
if bad then return refuse() end

if action == 'create' then
  local used = known and stride > 0 and reason ~= 'no-tag'
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    if string.sub(fields[i], 1, 2) == 'n:' and (number_of(fields[i + 1], MOST) or MOST) > from then used = true end
  end
  if used then return done('exists') end
  -- Redis may have lost it, and it goes on above its numbers (N4)
  local closed = from > 1 and notice()
  if closed then return closed end
  slack = math.max(slack, default_slack)
  if from > 1 and wait_ms() > 0 then return done('settling', fmt(wait_ms())) end
  local id, refused = identified(durability)
  if not id then return refused end
  next_number = from
  local constants = { signature = signature, identity = id, database = database, reason = '', format = format,
    durability = durability, slack_ms = fmt(default_slack), start = fmt(from), stride = fmt(new_stride),
    maximum = fmt(new_maximum), closed_until = '0', closed_at = '0', losses = fmt(losses) }
  for name, value in pairs(constants) do put(name, value) end
  return done('opened')
end

local refused = notice()
if refused then return refused end
if stride == 0 then return done('absent') end
if now < from_ms or now >= until_ms then return done('other') end
if wait_ms() > 0 then return done('settling', fmt(wait_ms())) end
next_number = aligned(math.max(next_number, from))
put('n:' .. period, fmt(next_number))
put('o:' .. period, fmt(losses))
-- it may be later than it can be, if the clock was ahead: then periods that nobody can have used were closed, too
put('closed_until', fmt(math.min(closed_until, now + SKEW_MS + slack)))
return done('opened')
