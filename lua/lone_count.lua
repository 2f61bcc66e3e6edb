-- Decides one request of one check of a fixed window, like single.lua, but only in the usual cases; in other cases
-- it returns nothing, and single.lua decides after it. Arguments and reply are in wire.lua.
--
-- It creates no other function, because a script creates only the functions before it.

local function lone_count(keys, args)
  if args[1] ~= '' then
    return
  end
  call, pack, unpack_at = redis.call, struct.pack, struct.unpack
  local _, flags, window, limit, _, cost, floor = unpack_at(RULE, args[2], 2)
  local time, key = call('TIME'), keys[1]
  local value, now_us, tick = call('MGET', key)[1], time[1] * 1000000 + time[2], flags % 4 >= 2 and 1000 or 1
  local now, found, count = (now_us - now_us % tick) / tick, FRESH, 0
  local start = now - now % window
  if value then
    if #value ~= 12 then
      return
    end
    local high, low = unpack_at('>I6I6', value)
    local count_high = high % 16
    found, count = KEPT, count_high * LOW_SPAN + low
    if count == 0 or (high - count_high) / 16 ~= start % TIME_SPAN then
      return
    end
  end
  if cost == 0 then
    return
  end
  if count + cost + floor > limit then
    return pack('>I7B', now_us, 2 * found) .. (value or '')
  end
  count = count + cost
  local low = count % LOW_SPAN
  local state = pack('>I6I6', (start % TIME_SPAN) * 16 + (count - low) / LOW_SPAN, low)
  if value then
    call('SETRANGE', key, '0', state)
  else
    local life = (start + window - now) * tick
    call('SET', key, state, 'PX', (life - life % 1000) / 1000 + 2)
  end
  return pack('>I7B', now_us, 2 * found + 1) .. (value or '')
end
