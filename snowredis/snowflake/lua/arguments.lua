-- arguments: the checks of arguments. The loader puts it in front of common and of registry.

-- the name of the first argument that is not valid
local bad
local function number_of(text)
  if type(text) ~= 'string' or #text > 15 or not string.find(text, '^%d+$') then return nil end
  local n = tonumber(text)
  return n <= YEAR_5138 and n or nil
end
local function int(name, text, low, high)
  if type(text) ~= 'string' or #text > 15 or not string.find(text, '^%-?%d+$') then
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
local function ints(name, text, count)
  local list = {}
  for item in string.gmatch(str(name, text, '^[%d,]*$', 1100), '[^,]+') do
    list[#list + 1] = int(name, item, 0, YEAR_5138)
  end
  if #list ~= count then bad = bad or name end
  return list
end
local function refuse() return redis.error_reply('SNOWREDIS bad argument ' .. bad) end
