-- Calendar window: a fixed window that ends by a calendar. The process knows the calendar, and sends three windows:
-- its current one, the one before and the one after. The server's clock chooses between them.
--
-- value     12 bytes: the end of the counted window (44 bits) and its count (52)
-- now       ticks, which are milliseconds
-- first     the start of the process's current window
-- lengths   minutes of the window before it (times 2^32), of itself (times 2^16), and of the window after it
-- limit, cost, floor, refund, charge   like in fixed_window.lua
-- stamp     the end of the window the units were taken from, or NEVER for any
--
-- calendar_window and calendar_window_adjust return the same as in fixed_window.lua. If the time is in none of the
-- three windows, found is OUTSIDE, and nothing fits, not even a peek.

local MINUTE = 60000

local function calendar_window_current(value, now, first, lengths)
  local third = lengths % 2 ^ 16
  local second = (lengths - third) / 2 ^ 16 % 2 ^ 16
  local length = (lengths - second * 2 ^ 16 - third) / 2 ^ 32 * MINUTE
  local ends = first
  if now >= ends then
    length = second * MINUTE
    ends = ends + length
  end
  if now >= ends then
    length = third * MINUTE
    ends = ends + length
  end
  if now >= ends or now < ends - length then
    return ends, 0, OUTSIDE
  end
  if not value then
    return ends, 0, FRESH
  end
  if #value ~= 12 then
    return ends, 0, FOREIGN
  end
  local high, low = unpack_at('>I6I6', value)
  local count_high = high % 16
  local kept = whole_time((high - count_high) / 16, now)
  if kept > ends + 2 * length then
    return ends, 0, AHEAD
  end
  if kept > now then
    return kept, count_high * LOW_SPAN + low, KEPT
  end
  return ends, 0, KEPT
end

local function calendar_window(value, now, first, limit, lengths, cost, floor)
  local ends, count, found = calendar_window_current(value, now, first, lengths)
  if found == OUTSIDE then
    return false, found
  end
  local fits = cost == 0 or count + cost + floor <= limit
  if not fits or cost == 0 then
    return fits, found
  end
  -- What was counted in this window was written with its end.
  local stands = count > 0
  count = count + cost
  return true, found, fixed_window_state(ends, count), ends - now, stands
end

local function calendar_window_adjust(value, now, first, limit, lengths, refund, charge, stamp)
  local ends, count, found = calendar_window_current(value, now, first, lengths)
  if found == OUTSIDE then
    return 0
  end
  if stamp ~= NEVER and stamp ~= ends then
    refund = 0
  end
  local kept = max(0, count - refund)
  local changed = min(kept + charge, max(kept, 2 * limit))
  local units = max(count - kept, changed - kept)
  if changed ~= count then
    return units, fixed_window_state(ends, changed), ends - now, count > 0
  end
  return units
end
