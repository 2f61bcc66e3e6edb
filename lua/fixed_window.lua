-- Fixed window: a count that starts anew at each multiple of the window since the epoch.
--
-- value     a level: the start of the window counted, and its count
-- now       ticks
-- window    ticks
-- limit     units per window
-- cost      units to take; 0 only looks
-- floor     units that must remain
-- refund, charge   units given back or added
-- stamp     the start of the window the units were taken from, or NEVER for any
--
-- fixed_window returns fits, remaining, wait, reset, delay, stamp, state, found;
-- fixed_window_adjust returns the new state and its reset, or nothing.

local function fixed_window_current(value, now, window)
  local start, count, found = read_level(value, now, window)
  local current = now - now % window
  if found ~= KEPT or current > start then
    return current, 0, found
  end
  return start, count, found
end

local function fixed_window(value, now, window, limit, _, cost, floor)
  local start, count, found = fixed_window_current(value, now, window)
  local fits = cost == 0 or count + cost + floor <= limit
  if fits then
    count = count + cost
  end
  local remaining = max(0, limit - count - floor)
  local need = fits and 1 or cost
  local wait = start + window - now
  if fits and remaining > 0 then
    wait = 0
  elseif need + floor > limit then
    wait = NEVER
  end
  local reset = count > 0 and start + window - now or 0
  return fits, remaining, wait, reset, 0, start, write_level(start, count), found
end

local function fixed_window_adjust(value, now, window, limit, _, refund, charge, stamp)
  local start, count = fixed_window_current(value, now, window)
  if stamp ~= NEVER and stamp ~= start then
    refund = 0
  end
  local kept = max(0, count - refund)
  local changed = min(kept + charge, max(kept, 2 * limit))
  if changed ~= count then
    return write_level(start, changed), start + window - now
  end
end
