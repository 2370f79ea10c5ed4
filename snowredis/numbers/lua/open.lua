-- open: let a tag hand out segments, because somebody says from where on none was handed out.
--
-- KEYS, ARGV[1..10] as in common
-- ARGV[11] how            string: create, the tag is new | word, of a person | bound, of a program
-- ARGV[12] from_position  int, no position from here on was ever handed out
-- ARGV[13] settle_ms      int, how long the tag has to be closed before, so that clients report
-- ARGV[14] replace        0 | 1, take over another signature, whose positions mean nothing any more
--
-- Returns opened, common fields, 1 if something changed
--       | settling, common fields, ms to wait
--       | exists, common fields: it is not new; or a program wants to open it, and a person has closed it
-- Cost    O(1), with replace O(clients)

local how = str('how', ARGV[11], '^%l+$', 10)
local from = int('from_position', ARGV[12], 0, MAX_POSITION)
local settle = int('settle_ms', ARGV[13], 0, 864e5)
local replace = int('replace', ARGV[14], 0, 1) == 1
if bad then return refuse() end

local tag, refused = read_tag(replace)
if not tag then return refused end

local function done(status, ...)
  commit(tag)
  return reply_with(tag, status, ...)
end
if how == 'create' and not (tag.reason == 'no-tag' and tag.next == 0) then return done('exists') end
-- S9: other servers may hand out the numbers now, of which a program with the old ones does not know
if how == 'bound' and redis.call('HGET', KEYS[1], 'moved') then return done('exists') end
-- S8: until then, a deposed master may hand out segments, and then clients report theirs
local wait = settle + (how == 'create' and 0 or slack)
if tag.reason ~= '' and now < tag.closed_at + wait then
  return done('settling', fmt(tag.closed_at + wait - now))
end
if tag.signature ~= signature then
  if tag.reason == '' then return done('exists') end
  redis.call('DEL', KEYS[1], KEYS[2])
  tag.signature, tag.next, tag.gaps, tag.handed, tag.trimmed, tag.reason = signature, 0, '', 0, 0, 'moved'
end
if tag.reason == '' and (how == 'bound' or not cyclic and from <= tag.next) then return done('opened', '0') end
if cyclic then
  -- the next position, in this cycle or the next, with that number
  local cycle = tag.next - tag.next % size
  from = cycle + from % size
  if from < tag.next then from = from + size end
end
open(tag, from, how)
redis.call('HDEL', KEYS[1], 'moved')
tag.tokens, tag.tokens_at = burst, now
return done('opened', '1')
