-- arguments: the checks of arguments, and the time. The loader puts it in front of common and of dated.

-- exact in doubles, 16 digits
local MAX_POSITION = 9e15
-- the name of the first argument that is not valid
local bad
local function number_of(text)
  if type(text) ~= 'string' or #text > 16 or not string.find(text, '^%d+$') then return nil end
  local n = tonumber(text)
  return n <= MAX_POSITION and n or nil
end
local function int(name, text, low, high)
  local n = number_of(text)
  if not n or n < low or n > high then
    bad = bad or name
    return low
  end
  return n
end
local function str(name, text, pattern, longest)
  if type(text) ~= 'string' or #text > longest or not string.find(text, pattern) then
    bad = bad or name
    return ''
  end
  return text
end
local function fmt(n) return string.format('%.0f', n) end
local function refuse() return redis.error_reply('SNOWREDIS bad argument ' .. bad) end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
