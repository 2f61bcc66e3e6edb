-- Fixed window: a count that starts over at each multiple of the window since the epoch.
--
-- value     12 bytes: the start of the counted window (44 bits) and its count (52)
-- now       ticks
-- window    ticks
-- limit     units per window
-- cost      units to take; 0 is a peek
-- floor     units that must remain
-- refund, charge   units refunded or charged
-- stamp     the start of the window the units were taken from, or NEVER for any
--
-- fixed_window returns fits, found, and if units were taken state, expiry and whether the expiry stays;
-- fixed_window_adjust returns the units refunded or charged, and the same three values if the state changes.

local function fixed_window_current(value, now, window)
  local current = now - now % window
  if not value then
    return current, 0, FRESH
  end
  if #value ~= 12 then
    return current, 0, FOREIGN
  end
  local high, low = unpack_at('>I6I6', value)
  local count_high = high % 16
  local start = whole_time((high - count_high) / 16, now)
  if start > now + window then
    return current, 0, AHEAD
  end
  if current > start then
    return current, 0, KEPT
  end
  return start, count_high * LOW_SPAN + low, KEPT
end

local function fixed_window_state(start, count)
  local low = count % LOW_SPAN
  return pack('>I6I6', (start % TIME_SPAN) * 16 + (count - low) / LOW_SPAN, low)
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
  return true, found, fixed_window_state(start, count), start + window - now, stands
end

local function fixed_window_adjust(value, now, window, limit, _, refund, charge, stamp)
  local start, count = fixed_window_current(value, now, window)
  if stamp ~= NEVER and stamp ~= start then
    refund = 0
  end
  local kept = max(0, count - refund)
  local changed = min(kept + charge, max(kept, 2 * limit))
  local units = max(count - kept, changed - kept)
  if changed ~= count then
    return units, fixed_window_state(start, changed), start + window - now, count > 0
  end
  return units
end
