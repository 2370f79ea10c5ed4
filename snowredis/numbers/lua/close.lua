-- close: let a tag hand out nothing until a person opens it, who wants to change it.
--
-- KEYS, ARGV[1..10] as in common; the signature may differ
--
-- Returns opened, common fields, 0; the tag is closed now
-- Cost    O(1)

if bad then return refuse() end

local tag, refused = read_tag(true)
if not tag then return refused end
close(tag, 'moved')
-- also if it was closed before: a program could open it now, with the old constants
commit(tag, 'moved', '1')
return reply_with(tag, 'opened', '0')
