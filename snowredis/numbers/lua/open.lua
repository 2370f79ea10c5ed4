-- open: let a tag hand out segments, because somebody says from where on none was handed out.
--
-- KEYS, ARGV[1..6] as in common
-- ARGV[7] how            string: create, the tag is new | word, of a person | bound, of a program | change, of constants
-- ARGV[8] from_position  int, no position from here on was ever handed out
-- ARGV[9] settle_ms      int, how long the tag has to be closed before, so that clients report
-- ARGV[10] run            hex, the change that closed the tag; empty if this is none
--
-- Returns opened, common fields, 1 if something changed
--       | settling, common fields, ms to wait
--       | exists, common fields: it is not new; a program wants to open it, and a person has closed it; or another change
--         has closed or opened it since
-- Cost    O(1), with change O(clients)

local how = str('how', ARGV[7], '^%l+$', 10)
local from = int('from_position', ARGV[8], 0, MAX_POSITION)
local settle = int('settle_ms', ARGV[9], 0, 864e5)
local run = str('run', ARGV[10], '^%x*$', 64)
if bad then return refuse() end

local tag, refused = read_tag(how == 'change')
if not tag then return refused end

local function done(status, ...)
  commit(tag)
  return reply_with(tag, status, ...)
end
if how == 'create' and not (tag.reason == 'no-tag' and tag.next == 0) then return done('exists') end
-- S8: other servers may hand out the numbers now, of which a program with the old ones does not know
local moved = redis.call('HGET', KEYS[1], 'moved')
if how == 'bound' and moved then return done('exists') end
-- S9: of two changes at the same time, the one that closed the tag last knows all numbers
if how == 'change' and moved ~= run then return done('exists') end
if tag.reason == '' and (how == 'bound' or from <= tag.next) then return done('opened', '0') end
-- S7: until then, a deposed master may hand out segments, and then clients report theirs
local wait = settle + (how == 'create' and 0 or slack)
if tag.reason ~= '' and now < tag.closed_at + wait then
  return done('settling', fmt(tag.closed_at + wait - now))
end
if tag.signature ~= signature then
  redis.call('DEL', KEYS[1], KEYS[2])
  tag.signature, tag.next, tag.gaps, tag.handed, tag.trimmed, tag.reason = signature, 0, '', 0, 0, 'moved'
end
open(tag, from, how)
redis.call('HDEL', KEYS[1], 'moved')
return done('opened', '1')
