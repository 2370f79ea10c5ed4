-- release: make a worker id available again, with marks lowered to the times that were used.
--
-- KEYS, ARGV[1..6] as in pool
-- ARGV[7] lease       lease_of: what the holder has
-- ARGV[8] marks_ms    string: each lane's first unused ms, 0 for a lane never used, comma separated; empty if unknown:
--                     the whole reservation counts as used
-- ARGV[9] stats       stats_of: as in renew
-- ARGV[10] reclaimed  0 | 1, 1: on behalf of a process that was killed
--
-- Returns released, common fields | gone, common fields: the caller is not the holder any more, nothing changed
-- Cost    O(log pool)

local token_hash, renewal_id, pending, held_until, held_outage = lease_of('lease', ARGV[7])
local marks = str('marks_ms', ARGV[8], '^[%d,]*$', 1100)
local stats = stats_of('stats', ARGV[9])
local reclaimed = int('reclaimed', ARGV[10], 0, 1) == 1

-- Returns the *lowered* outage lanes of a record with one more; of too many, the two oldest become one with both.
local MOST_LOWERED = 3
local function with_lowered(lowered, from, to)
  local first, first_end, second_end, rest = string.match(lowered, '^,(%d+)-(%d+),%d+-(%d+)(,%d+-%d+)')
  local _, number = string.gsub(lowered, '-', '')
  if number == MOST_LOWERED then
    lowered = ',' .. first .. '-' .. math.max(first_end, second_end) .. rest
  end
  return lowered .. ',' .. from .. '-' .. to
end

return transaction(function(pool)
  local r, unreadable = record_in(pool.record, worker)
  if unreadable then return unreadable end
  if not (r and r.token == token_hash and in_chain(r, renewal_id, pending) and r.incarnation == pool.incarnation) then
    return { 'gone' }
  end

  local used = marks ~= '' and ints('marks_ms', marks, #r.lanes)
  if bad then return {} end

  local ended = r.lease_end <= now and r.lease_end
  if ended then
    note_end(pool, worker, r)
    if not reclaimed then
      event('returned', worker, r.owner, r.lanes[1], r['until'], 'ended', ended)
      count('returned')
    end
  end
  local used_from, used_until = r.lanes[1], r['until']
  -- R7: a mark that is this holder's own end is lowered to the first unused ms of its lane. A later one is that of a
  -- renewal whose reply this holder does not know; a copy of it may
  local last = #r.lanes
  if used and r['until'] == held_until then
    used_until = 0
    local is_unused = true
    for i = 1, outage > 0 and last - 1 or last do
      is_unused = is_unused and used[i] <= r.lanes[i]
      r.lanes[i] = math.max(r.lanes[i], used[i])
      used_until = math.max(used_until, used[i])
    end
    r['until'] = 0
    if is_unused then note_unused(pool, token_hash) end
  end
  if used and outage > 0 and r.outage == held_outage and r.outage > r.lanes[last] then
    local from = r.lanes[last]
    r.lanes[last] = math.max(from, used[last])
    if r.lanes[last] < r.outage then r.lowered = with_lowered(r.lowered, from, r.outage) end
    r.outage = 0
  end
  local outage_mark = outage > 0 and math.max(r.lanes[last], r.outage) or 0
  redis.call('ZADD', KEYS[2], now, worker)
  r.stats = stats
  if reclaimed then
    event_of_end(now, 'reclaimed', worker, r, used_from, used_until, outage_mark)
  else
    event_of_end(now, 'released', worker, r, used_from, used_until, outage_mark)
  end
  -- a process has one death, also if its lease ended before it was reclaimed
  count(reclaimed and not ended and 'reclaimed' or 'releases')
  r.token, r.renewal_id, r.owner, r.lease_end = '', '', '', now
  drop_token(pool, token_hash, worker)
  put(pool, 'w:' .. worker, pack_record(r))
  return { 'released' }
end)
