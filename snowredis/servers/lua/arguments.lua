-- arguments: the beginning of every script, after identity: its first two arguments, and the checks of the others.
--
-- ARGV[1] signature  string, the format and the constants; what is stored with another one is refused
-- ARGV[2] nonce      hex, random: the last field of the reply, and part of the name of a new incarnation
--
-- Returns broken, field, its value: no script wrote that value; nothing was changed
--
-- Times are ms since 1970; they are exact in Lua's doubles, and tostring() keeps their 13 digits. fmt() keeps 16.

-- the highest time that tostring() writes without an exponent
local YEAR_5138 = 1e14 - 1

-- the name of the first argument that is not valid
local bad
-- Returns the number in a text of digits, up to *most* or YEAR_5138; nil for any other text.
local function number_of(text, most)
  if type(text) ~= 'string' or #text > 16 or not string.find(text, '^%d+$') then return nil end
  local n = tonumber(text)
  return n <= (most or YEAR_5138) and n or nil
end
local function int(name, text, low, high)
  if type(text) ~= 'string' or #text > 16 or not string.find(text, '^%-?%d+$') then
    bad = bad or name
    return low
  end
  local n = tonumber(text)
  if n < low or n > high then bad = bad or name end
  return n
end
local function str(name, text, pattern, longest)
  if type(text) ~= 'string' or #text > longest or not string.find(text, pattern) then
    bad = bad or name
    return ''
  end
  return text
end
-- Returns a list of numbers, *count* of them, if that is given.
local function ints(name, text, count)
  local list = {}
  for item in string.gmatch(str(name, text, '^[%d,]*$', 1100), '[^,]+') do
    list[#list + 1] = tonumber(item)
    if list[#list] > YEAR_5138 then bad = bad or name end
  end
  if #list ~= (count or #list) then bad = bad or name end
  return list
end
local function fmt(n) return string.format('%.0f', n) end
local function refuse() return redis.error_reply('SNOWREDIS bad argument ' .. bad) end

local signature = str('signature', ARGV[1], '^[%w ./;=_+:,-]+$', 400)
local nonce = str('nonce', ARGV[2], '^%x+$', 64)

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local function broken(field, text) return { 'broken', field, string.sub(text or '', 1, 60), nonce } end
