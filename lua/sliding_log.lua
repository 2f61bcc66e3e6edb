-- Sliding log: the time of every unit, so that no window ever holds more than the limit.
--
-- value     6 bytes of the last time seen, then 4 of the time of each unit, oldest first: its low 32 bits, which
--           determine the whole time, because windows are shorter than 2^32 ticks
-- now       ticks
-- window    ticks
-- limit     units per window
-- cost      units to take; 0 is a peek
-- floor     units that must remain
-- refund, charge   units refunded or charged
-- stamp     the time the units were taken at, or NEVER for any
--
-- sliding_log returns fits, found, and if units were taken state, expiry and whether the expiry stays; and for a
-- found log its digest: the last time seen, the units that still count, the time of the newest unit, and the time
-- of the unit to wait for (6 bytes each);
-- sliding_log_adjust returns the units refunded or charged, and the same three values if the state changes.

local LOG_SPAN = 2 ^ 32

-- Returns the last time seen, the number of units, and what was found.
local function log_read(value, now, window)
  if not value then
    return now, 0, FRESH
  end
  if #value % 4 ~= 2 or #value < 6 then
    return now, 0, FOREIGN
  end
  local last = whole_time(unpack_at('>I6', value), now)
  if last > now + window then
    return now, 0, AHEAD
  end
  return last, (#value - 6) / 4, KEPT
end

-- The time of a unit, counted from 1.
local function log_time(value, last, unit)
  return last - (last - unpack_at('>I4', value, 4 * unit + 3)) % LOG_SPAN
end

-- The number of units at least `age` old at `time`.
local function log_aged(value, last, size, time, age)
  local low, high = 0, size
  while low < high do
    local middle = div_ceil(low + high, 2)
    if log_time(value, last, middle) + age <= time then
      low = middle
    else
      high = middle - 1
    end
  end
  return low
end

-- The bytes of the units `from` to `to`, counted from 1.
local function log_units(value, from, to)
  return value and value:sub(4 * from + 3, 4 * to + 6) or ''
end

-- The state with these units and `taken` more at `time`.
local function log_state(time, units, taken)
  return pack('>I6', time % TIME_SPAN) .. units .. pack('>I4', time % LOG_SPAN):rep(taken)
end

local function sliding_log(value, now, window, limit, _, cost, floor)
  local last, size, found = log_read(value, now, window)
  local time = max(last, now)
  local expired = log_aged(value, last, size, time, window)
  local live = size - expired
  local fits = cost == 0 or live + cost + floor <= limit
  local taken = fits and cost or 0
  local digest
  if found == KEPT then
    local need = fits and 1 or cost
    local leaving = min(size, max(expired + 1, expired + live + taken + need + floor - limit))
    local newest = size > 0 and log_time(value, last, size) or last
    local left = live > 0 and log_time(value, last, leaving) or last
    digest = pack('>I6I6I6I6', last % TIME_SPAN, live, newest % TIME_SPAN, left % TIME_SPAN)
  end
  if taken == 0 then
    return fits, found, nil, nil, nil, digest
  end
  local state = log_state(time, log_units(value, expired + 1, size), taken)
  return true, found, state, time + window - now, false, digest
end

local function sliding_log_adjust(value, now, window, limit, _, refund, charge, stamp)
  local last, size = log_read(value, now, window)
  local time = max(last, now)
  local expired = log_aged(value, last, size, time, window)
  local to = size
  local from = expired
  if stamp ~= NEVER then
    to = max(expired, log_aged(value, last, size, stamp, 0))
    from = max(expired, log_aged(value, last, size, stamp, 1))
  end
  local refunded = min(refund, to - from)
  local kept = size - expired - refunded
  local charged = min(charge, max(0, 2 * limit - kept))
  if refunded == 0 and charged == 0 then
    return 0
  end
  local units = log_units(value, expired + 1, to - refunded) .. log_units(value, to + 1, size)
  return refunded + charged, log_state(time, units, charged), time + window - now, false
end
