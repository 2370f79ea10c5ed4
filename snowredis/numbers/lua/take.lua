-- take: hand out the next segment of a tag to a client, or note its report.
--
-- KEYS, ARGV[1..7] as in common
-- ARGV[8] client          hex, random: one generator in one process
-- ARGV[9] received        int, segments that the client has received so far
-- ARGV[10] request_id      hex, random: a repeated request has the same, and gets the same segment
-- ARGV[11] segments        string, its newest segments, the oldest first: from-until,from-until; up to MOST_SEGMENTS
-- ARGV[12] incarnation     string, of the tag when the client received the newest one
-- ARGV[13] seen            int, the highest end of a segment that the client knows of
-- ARGV[14] wanted          int, positions that the client asks for; 0: this is a report
-- ARGV[15] owner           owner_of: the process
--
-- Returns granted, common fields, from, until: the segment
--       | noted, common fields: the report was noted
--       | closed, common fields, reason, time since when: nothing is handed out until the tag is opened
--       | exhausted, common fields, 0: the range is used up
--       | copied, common fields: the client's request is not the next one of its name
-- Cost    O(log clients)

local client = str('client', ARGV[8], '^%x+$', 64)
local received = int('received', ARGV[9], 0, MAX_POSITION)
local request_id = str('request_id', ARGV[10], '^%x*$', 64)
local segments = str('segments', ARGV[11], '^[%d,-]*$', 600)
local incarnation = str('incarnation', ARGV[12], '^[%x-]*$', 64)
local seen = int('seen', ARGV[13], 0, MAX_POSITION)
local wanted = int('wanted', ARGV[14], 0, 1e13)
local owner = owner_of('owner', ARGV[15])
local list = {}
for from, ends in string.gmatch(segments, '(%d+)-(%d+)') do
  list[#list + 1] = { from = int('segments', from, 0, MAX_POSITION), ['until'] = int('segments', ends, 0, MAX_POSITION) }
end
if #list > received or received > 0 and #list == 0 then bad = bad or 'segments' end
local newest = list[#list] or { from = 0, ['until'] = 0 }
if bad then return refuse() end

local tag, refused = read_tag()
if not tag then return refused end

local field = 'c:' .. client
local function unpack_record(text)
  local count, id, from, ends, grant_incarnation = string.match(text or '',
    '^(%d+)|(%x*)|(%d+)|(%d+)|([%x-]*)|%d+|{.*}$')
  if not count then return nil end
  return { received = tonumber(count), request_id = id, from = tonumber(from), ['until'] = tonumber(ends),
    incarnation = grant_incarnation }
end
local r = unpack_record(redis.call('HGET', KEYS[1], field))
local function pack_record(count, id, from, ends, grant_incarnation)
  return table.concat({ fmt(count), id, fmt(from), fmt(ends), grant_incarnation, fmt(now), owner }, '|')
end
local function count_of(name, by) redis.pcall('HINCRBY', KEYS[1], name, fmt(by)) end

-- S6: requests of a client come one after the other. One that is older is late; or this is a copy of a process
if r and (r.received > received + 1 or r.received == received + 1 and r.request_id ~= request_id) then
  commit(tag)
  return reply_with(tag, 'copied')
end

-- S4: the client has segments that this history did not hand out to it
local known = r and (r.received > received or r.received == received and r['until'] == newest['until'])
local lost = received > 0 and not known and newest['until'] > tag.trimmed
if lost then
  -- what of them others may have, too: all that this history handed out, which has gaps
  local handed, alarm_from, alarm_until = tag.reason ~= '' and tag.handed or tag.next, nil, nil
  local function note_between(low, high, from, ends)
    from, ends = math.max(from, low), math.min(ends, high)
    if from < ends then
      alarm_from, alarm_until = math.min(alarm_from or from, from), math.max(alarm_until or ends, ends)
    end
  end
  local function note_handed_out(from, ends)
    local at = 0
    for gap_from, gap_until in string.gmatch(tag.gaps, '(%d+)-(%d+)') do
      note_between(at, tonumber(gap_from), from, ends)
      at = tonumber(gap_until)
    end
    note_between(at, handed, from, ends)
  end
  -- how many of them this history knows: its record may be of a segment whose reply was lost, and that was replaced
  local before = received - #list
  local recorded = r and math.min(r.received, received) or 0
  if r and list[recorded - before] and list[recorded - before]['until'] ~= r['until'] then recorded = recorded - 1 end
  -- those that are not told
  if recorded < before then note_handed_out(r and r['until'] or 0, list[1].from) end
  for i, segment in ipairs(list) do
    if before + i > recorded then note_handed_out(segment.from, segment['until']) end
  end
  if alarm_from then
    tag.alarm = fmt(alarm_from) .. ' ' .. fmt(alarm_until)
    event('alarm', 'from', fmt(alarm_from), 'until', fmt(alarm_until), 'client', client, 'owner', owner)
    count_of('alarms', 1)
    redis.call('HSET', KEYS[1], 'alarm', tag.alarm .. ' ' .. fmt(now))
  end
  if newest['until'] > tag.opened_from then close(tag, 'rolled-back') end
end
-- S3: what any client saw handed out is not handed out again
local top = math.max(seen, newest['until'])
if top > tag.next then
  close(tag, 'rolled-back')
  tag.next = top
end

-- clients that have been silent for long
redis.call('ZADD', KEYS[2], fmt(now), client)
local all_silent = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', fmt(now - FORGOTTEN_MS), 'LIMIT', 0, 3)
for _, silent in ipairs(all_silent) do
  local old = unpack_record(redis.call('HGET', KEYS[1], 'c:' .. silent))
  tag.trimmed = math.max(tag.trimmed, old and old['until'] or 0)
end
-- Writes the tag, and only then forgets those clients, which may be refused.
local function finish(status, record, ...)
  if record then commit(tag, field, record) else commit(tag) end
  for _, silent in ipairs(all_silent) do
    redis.call('HDEL', KEYS[1], 'c:' .. silent)
    redis.call('ZREM', KEYS[2], silent)
  end
  return reply_with(tag, status, ...)
end

local function keep(status, ...)
  local record = (lost or not r) and pack_record(received, '', newest.from, newest['until'], incarnation)
  return finish(status, record, ...)
end
if tag.reason ~= '' then return keep('closed', tag.reason, fmt(tag.closed_at)) end
if wanted == 0 then return keep('noted') end

-- S5: the same request again, because its reply was lost. Not of another incarnation, whose segment others may have, too
if r and not lost and r.received == received + 1 and r.incarnation == tag.incarnation then
  return finish('granted', nil, fmt(r.from), fmt(r['until']))
end

local count = math.min(wanted, size - tag.next)
if count < 1 then return keep('exhausted', '0') end
local from = tag.next
tag.next = from + count
count_of('segments', 1)
count_of('handed_out', count)
event('segment', 'client', client, 'owner', owner, 'from', fmt(from), 'until', fmt(tag.next))
return finish('granted', pack_record(received + 1, request_id, from, tag.next, tag.incarnation), fmt(from), fmt(tag.next))
