-- Decides one request of one check of a falling level, like single.lua, but only in the usual cases; in other cases
-- it returns nothing, and single.lua decides after it. Arguments and reply are in wire.lua.
--
-- It creates no other function, because a script creates only the functions before it.

local LEAKY_BUCKET = 5

local function lone_level(keys, args)
  if args[1] ~= '' then
    return
  end
  call, pack, unpack_at = redis.call, struct.pack, struct.unpack
  local algorithm, flags, window, limit, capacity, cost, floor = unpack_at(RULE, args[2], 2)
  local time, key = call('TIME'), keys[1]
  local value, now_us, tick = call('MGET', key)[1], time[1] * 1000000 + time[2], flags % 4 >= 2 and 1000 or 1
  local now, found, seen, level, expiry = (now_us - now_us % tick) / tick, FRESH, 0, 0, 0
  if value then
    if #value ~= FALLING_SIZE then
      return
    end
    found, seen, level, expiry = KEPT, unpack_at(FALLING, value)
  end
  if cost == 0 or seen > now or level >= NEVER then
    return
  end
  level = level - (now - seen) * limit
  level = level < 0 and cost * window or level + cost * window
  local room = (capacity - floor) * window
  if algorithm == LEAKY_BUCKET then
    room = cost + floor <= capacity and room + (cost - 1) * window or -1
  end
  if level > room then
    return pack('>I7B', now_us, 2 * found) .. (value or '')
  end
  local sum = level + limit - 1
  local need = now + (sum - sum % limit) / limit
  if need <= expiry and expiry <= need + window then
    call('SETRANGE', key, '0', pack('>I7I7', now, level))
  else
    local life = (need - now + window) * tick
    if life > NEVER then
      return
    end
    call('SET', key, pack(FALLING, now, level, need + window), 'PX', (life - life % 1000) / 1000 + 2)
  end
  return pack('>I7B', now_us, 2 * found + 1) .. (value or '')
end
