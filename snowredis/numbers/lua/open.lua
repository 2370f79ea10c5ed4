-- open: let a tag hand out segments, because a person says from where on none was handed out.
--
-- KEYS, ARGV[1..7] as in common
-- ARGV[8] how            string: create, the tag is new | word, no position from here on was ever handed out
-- ARGV[9] from_position  int, where it opens, or later
--
-- Returns opened, common fields, 1 if something changed
--       | settling, common fields, ms to wait
--       | exists, common fields: it is not new
-- Cost    O(1)

local how = str('how', ARGV[8], '^%l+$', 10)
local from = int('from_position', ARGV[9], 0, MAX_POSITION)
if bad then return refuse() end

local tag, refused = read_tag()
if not tag then return refused end

local function done(status, ...)
  commit(tag)
  return reply_with(tag, status, ...)
end
if how == 'create' and not (tag.reason == 'no-tag' and tag.next == 0) then return done('exists') end
if tag.reason == '' and from <= tag.next then return done('opened', '0') end
-- S7: until then, a deposed master may hand out segments
local wait = how == 'create' and 0 or slack
if tag.reason ~= '' and now < tag.closed_at + wait then
  return done('settling', fmt(tag.closed_at + wait - now))
end
open(tag, from, how)
return done('opened', '1')
