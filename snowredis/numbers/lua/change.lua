-- change: give an open tag other constants. Its numbers go on where they are, so nothing is deleted.
--
-- KEYS, ARGV[1..7] as in common, with the constants that the tag has
-- ARGV[8] new_signature  string, with the new constants
-- ARGV[9] new_assured    0 | 1
-- ARGV[10] new_size      int
--
-- Returns changed, common fields
--       | closed, as take: Redis may have forgotten numbers, which a person has to know
--       | exhausted, common fields, 0: with these constants, no number would be left; nothing was changed
--       | unidentified, as in common
--       | missing: there is no such tag; nothing was changed
-- Cost    O(1)

local new_signature = str('new_signature', ARGV[8], '^[%w ./;=_+:,-]+$', 400)
local new_assured = int('new_assured', ARGV[9], 0, 1) == 1
local new_size = int('new_size', ARGV[10], 1, MAX_POSITION)
if bad then return refuse() end
if not redis.call('HGET', KEYS[1], 'signature') then return { 'missing', nonce } end

local tag, refused = read_tag()
if not tag then return refused end
if tag.reason ~= '' then
  commit(tag)
  return reply_with(tag, 'closed', tag.reason, fmt(tag.closed_at))
end
if tag.next >= new_size then return reply_with(tag, 'exhausted', '0') end
tag.signature, tag.identity = new_signature, ''
if not new_assured then
  local id, reason = identity()
  if not id then return { 'unidentified', reason, nonce } end
  tag.identity = id
end
commit(tag)
return reply_with(tag, 'changed')
