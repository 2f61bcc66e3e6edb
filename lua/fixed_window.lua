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
-- fixed_window returns fits, found, and if units were taken state, expiry and whether that stands;
-- fixed_window_adjust returns the same three of the changed state, or nothing.

local function fixed_window_current(value, now, window)
  local start, count, found = read_level(value, '>I6I6', 12, now, window)
  local current = now - now % window
  if found ~= KEPT or current > start then
    return current, 0, found
  end
  return start, count, found
end

local function fixed_window(value, now, window, limit, _, cost, floor)
  local start, count, found = fixed_window_current(value, now, window)
  local fits = cost == 0 or count + cost + floor <= limit
  if not fits or cost == 0 then
    return fits, found
  end
  -- What was counted in this window was written with its end.
  local stands = count > 0
  count = count + cost
  return true, found, write_level(start, count), start + window - now, stands
end

local function fixed_window_adjust(value, now, window, limit, _, refund, charge, stamp)
  local start, count = fixed_window_current(value, now, window)
  if stamp ~= NEVER and stamp ~= start then
    refund = 0
  end
  local kept = max(0, count - refund)
  local changed = min(kept + charge, max(kept, 2 * limit))
  if changed ~= count then
    return write_level(start, changed), start + window - now, count > 0
  end
end
