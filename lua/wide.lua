-- Buckets whose levels may reach 2^52, because their capacity is large for their window: a level is whole units, and
-- the parts beyond them; a unit has `window` parts.
--
-- value     a falling level of units * window + parts: like in falling.lua, but from 2^52 on 29 bytes, a mark and
--           7 each for the last time seen, the units, when the key expires, and the parts
--
-- All other arguments and results are the same as in token_bucket.lua and leaky_bucket.lua. Capacities and
-- limits are up to 10^12, so windows are longer than 2251 ticks, limits below 2^40, and units below 2^42.

local MAX_WIDE = 2 ^ 42

-- Like read_falling, with a level in units and parts.
local function read_wide(value, now, window, limit)
  if not value then
    return now, 0, 0, FRESH, 0
  end
  local mark, time, units, expiry, parts
  if #value == FALLING_SIZE then
    time, units, expiry = unpack_at(FALLING, value)
    parts = units % window
    mark, units = units < NEVER and WIDE_MARK, (units - parts) / window
  elseif #value == WIDE_SIZE then
    mark, time, units, expiry, parts = unpack_at(WIDE, value)
    if units >= MAX_WIDE or parts >= window or units * window + parts < NEVER then
      mark = nil
    end
  end
  if mark ~= WIDE_MARK then
    return now, 0, 0, FOREIGN, 0
  end
  if time > now + window then
    return now, 0, 0, AHEAD, 0
  end
  if time > now then
    return time, units, parts, KEPT, expiry
  end
  local rest = (now - time) % window
  local fallen, left = mul_div(rest, limit, window)
  -- If the units of whole windows are not exact, they are above every level.
  units, parts = units - fallen - (now - time - rest) / window * limit, parts - left
  if parts < 0 then
    units, parts = units - 1, parts + window
  end
  if units < 0 then
    units, parts = 0, 0
  end
  return now, units, parts, KEPT, expiry
end

-- Ticks until a level has fallen, rounded up.
local function wide_ticks(units, parts, window, limit)
  local rest = units % limit
  local ticks, left = mul_div(rest, window, limit)
  return min(NEVER - 1, (units - rest) / limit * window + ticks + div_ceil(left + parts, limit))
end

-- Like write_falling. If the size of a state changes, it must be written as a whole.
local function write_wide(time, units, parts, value, expiry, now, window, limit)
  local reset = time - now + wide_ticks(units, parts, window, limit)
  local level = units * window + parts
  local need, size = now + reset, level < NEVER and FALLING_SIZE or WIDE_SIZE
  local stands = value and #value == size and need <= expiry and expiry <= need + window
  if not stands then
    expiry, reset = need + window, reset + window
  end
  if size == FALLING_SIZE then
    return pack(FALLING, time, level, expiry), reset, stands
  end
  return pack(WIDE, WIDE_MARK, time, units, expiry, parts), reset, stands
end

-- Takes `cost` if no more than `room` units are used.
local function wide_take(value, now, window, limit, cost, room)
  local time, units, parts, found, expiry = read_wide(value, now, window, limit)
  local fits = cost == 0 or units + (parts > 0 and 1 or 0) <= room
  if not fits or cost == 0 then
    return fits, found
  end
  return true, found, write_wide(time, units + cost, parts, value, expiry, now, window, limit)
end

-- Refunds `back` units less `less` parts, and charges units.
local function wide_change(value, now, window, limit, capacity, time, units, parts, expiry, back, less, charge)
  local kept, left = units - back, parts + less
  if left >= window then
    kept, left = kept + 1, left - window
  end
  if kept < 0 then
    kept, left = 0, 0
  end
  local charged = min(charge, max(0, 2 * capacity - kept - (left > 0 and 1 or 0)))
  local changed = charge > 0 and charged or units - kept + (parts > left and 1 or 0)
  if kept + charged ~= units or left ~= parts then
    return changed, write_wide(time, kept + charged, left, value, expiry, now, window, limit)
  end
  return changed
end

local function wide_token_bucket(value, now, window, limit, capacity, cost, floor)
  return wide_take(value, now, window, limit, cost, capacity - cost - floor)
end

local function wide_token_bucket_adjust(value, now, window, limit, capacity, refund, charge, stamp)
  local time, units, parts, _, expiry = read_wide(value, now, window, limit)
  local elapsed = stamp == NEVER and 0 or max(0, time - stamp)
  local rest, used = elapsed % window, units + (parts > 0 and 1 or 0)
  local refilled, less = mul_div(rest, limit, window)
  local back = min(refund, max(2 * capacity, used)) - refilled - (elapsed - rest) / window * limit
  if back < 0 or back == 0 and less > 0 then
    back, less = 0, 0
  end
  return wide_change(value, now, window, limit, capacity, time, units, parts, expiry, back, less, charge)
end

local function wide_leaky_bucket(value, now, window, limit, capacity, cost, floor)
  local room = cost + floor <= capacity and capacity - 1 - floor or -1
  return wide_take(value, now, window, limit, cost, room)
end

local function wide_leaky_bucket_adjust(value, now, window, limit, capacity, refund, charge, stamp)
  local time, units, parts, _, expiry = read_wide(value, now, window, limit)
  if stamp ~= NEVER and stamp ~= min(NEVER - 1, time + wide_ticks(units, parts, window, limit)) then
    refund = 0
  end
  local back = min(refund, units + (parts > 0 and 1 or 0))
  return wide_change(value, now, window, limit, capacity, time, units, parts, expiry, back, 0, charge)
end
