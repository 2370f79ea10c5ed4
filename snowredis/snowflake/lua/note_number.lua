-- note_number: note in a pool that the registry has confirmed its shard number, and the highest number there.
--
-- KEYS, ARGV[1..13] as in pool
-- ARGV[14] highest  int, the highest number that the registry has given
--
-- Returns noted, common fields | absent, common fields: there is no pool, nothing changed
-- Cost    O(1)

local highest = int('highest', ARGV[14], 0, 2 ^ 46)

return transaction(function(pool)
  if pool.created then
    pool.unchanged = true
    return { 'absent' }
  end
  local noted = number_of(redis.call('HGET', KEYS[1], 'highest_number')) or 0
  put(pool, 'highest_number', math.max(noted, highest))
  return { 'noted' }
end)
