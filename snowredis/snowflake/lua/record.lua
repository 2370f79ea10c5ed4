-- record: the format of the record of a worker id, the hash field "w:<worker id>" of the pool.
--
-- The loader puts it in front of common; the embedded server runs it when it ends. snowredis/monitor reads this format.

-- the highest time that tostring() writes without an exponent
local YEAR_5138 = 1e14 - 1

-- Returns the record in a text of pack_record(), or nil for any other text. The mark of a lane is the later of its entry
-- in lanes and until.
local function unpack_record(text)
  if not text then return nil end
  local token, incarnation, renewal_id, ends, lease_end, lanes, claimed, renewed, stats, owner = string.match(text,
    '^(%x*)|([%x-]*)|(%x*)|(%d+)|(%d+)|([%d,]*)|(%d+)|(%d+)|([%d,-]*)|(.*)$')
  if not token then return nil end
  local list, highest = {}, 0
  for item in string.gmatch(lanes, '[^,]+') do list[#list + 1] = tonumber(item) end
  for i = 1, #list do highest = math.max(highest, list[i]) end
  local r = { token = token, incarnation = incarnation, renewal_id = renewal_id, ['until'] = tonumber(ends),
    lanes = list, lease_end = tonumber(lease_end), claimed = tonumber(claimed), renewed = tonumber(renewed),
    stats = stats, owner = owner }
  highest = math.max(highest, r['until'], r.lease_end, r.claimed, r.renewed)
  return list[1] and highest <= YEAR_5138 and r or nil
end
local function pack_record(r)
  return table.concat({ r.token, r.incarnation, r.renewal_id, r['until'], r.lease_end, table.concat(r.lanes, ','),
    r.claimed, r.renewed, r.stats, r.owner }, '|')
end
