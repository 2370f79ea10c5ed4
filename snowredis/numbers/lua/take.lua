-- take: hand out the next numbers of a period.
--
-- KEYS, ARGV[1..11] as in tag
-- ARGV[12] wanted   int, how many numbers the caller asks for
-- ARGV[13] least    int, fewer are not handed out
-- ARGV[14] highest  int, the highest number that the caller can use
--
-- Returns granted, common fields, first, count, stride, left: the first number, how many, their distance, and how many are left
--       | exhausted, common fields, left: fewer than the least are left; none was handed out
--       | shut, common fields, reason, since: periods that begin since this time, ms, are open
--       | other, common fields: Redis' clock shows another period
-- Cost    O(1)

local wanted = int('wanted', ARGV[12], 1, 1e13)
local least = int('least', ARGV[13], 1, 1e13)
local highest = int('highest', ARGV[14], 0, MOST)
if bad then return refuse() end

local refused = notice()
if refused then return refused end
if now < from_ms or now >= until_ms then return done('other') end
if not is_open then return done('shut', reason, fmt(closed_until)) end
local first, last = next_number, math.min(maximum, highest)
local left = last < first and 0 or math.floor((last - first) / stride) + 1
if left < least then return done('exhausted', fmt(left)) end
local count = math.min(wanted, left)
-- N1
next_number = first + count * stride
put('n:' .. period, fmt(next_number))
return done('granted', fmt(first), fmt(count), fmt(stride), fmt(left - count))
