-- close: let a tag hand out nothing until it is opened, because a person wants to change it.
--
-- KEYS, ARGV[1..10] as in common; the signature may differ
--
-- Returns opened, common fields, 0; the tag is closed now
-- Cost    O(1)

if bad then return refuse() end

local tag, refused = read_tag(true)
if not tag then return refused end
close(tag, 'moved')
commit(tag)
return reply_with(tag, 'opened', '0')
