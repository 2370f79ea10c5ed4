-- close: let a tag hand out nothing, because a person wants to change it.
--
-- KEYS, ARGV[1..6] as in common; the signature may differ
-- ARGV[7] run    hex, random: the change, which opens the tag by this name
-- ARGV[8] force  0 | 1, the person knows from where on no number was handed out, also if Redis does not
--
-- Returns stopped, common fields, reason, 0 | 1: why it was closed before this, or would be; "" if it was open. Then 1
--         if a person closed it before, to change it. With a reason other than "" and moved, and without force, the tag
--         stays as it is, closed
-- Cost    O(1)

local run = str('run', ARGV[7], '^%x+$', 64)
local force = int('force', ARGV[8], 0, 1) == 1
if bad then return refuse() end

local tag, refused = read_tag(true)
if not tag then return refused end
local reason, moved = tag.reason, redis.call('HGET', KEYS[1], 'moved')
if reason == '' or reason == 'moved' or force or moved then
  close(tag, 'moved')
  -- also if it was closed before: a program could open it now, with the old constants
  commit(tag, 'moved', run)
else
  commit(tag)
end
return reply_with(tag, 'stopped', reason, moved and '1' or '0')
