-- Sliding window counter: the count of the aligned window, plus the share of the previous count that the sliding
-- window still covers: floor(previous * (window - elapsed) / window) + count.
--
-- value     19 bytes: the last time seen (7), the count of its window, and the count of the window before (6 each)
-- now       ticks
-- window    ticks
-- limit     units per window
-- cost      units to take; 0 is a peek
-- floor     units that must remain
-- refund, charge   units refunded or charged
-- stamp     the start of the window the units were taken from, or NEVER for any
--
-- sliding_window returns fits, found, and if units were taken state, expiry and whether the expiry stays;
-- sliding_window_adjust returns the units refunded or charged, and the same three values if the state changes.

local function sliding_window_current(value, now, window)
  if not value then
    return now, 0, 0, FRESH
  end
  if #value ~= 19 then
    return now, 0, 0, FOREIGN
  end
  local last, count, previous = unpack_at('>I7I6I6', value)
  if last >= NEVER then
    return now, 0, 0, FOREIGN
  end
  if last > now + window then
    return now, 0, 0, AHEAD
  end
  local time = max(last, now)
  local windows = (time - time % window - last + last % window) / window
  if windows == 0 then
    return time, count, previous, KEPT
  end
  if windows == 1 then
    return time, 0, count, KEPT
  end
  return time, 0, 0, KEPT
end

local function sliding_window_state(time, count, previous)
  return pack('>I7I6I6', time, count, previous)
end

local function sliding_window(value, now, window, limit, _, cost, floor)
  local time, count, previous, found = sliding_window_current(value, now, window)
  local elapsed = time % window
  local start = time - elapsed
  local weighed = previous * (window - elapsed)
  local weight = weighed < NEVER and (weighed - weighed % window) / window
    or mul_div(window - elapsed, previous, window)
  local fits = cost == 0 or weight + count + cost + floor <= limit
  if not fits or cost == 0 then
    return fits, found
  end
  -- What was counted in this window was written with the end of the next.
  local stands = count > 0
  count = count + cost
  return true, found, sliding_window_state(time, count, previous), start + 2 * window - now, stands
end

local function sliding_window_adjust(value, now, window, limit, _, refund, charge, stamp)
  local time, count, previous = sliding_window_current(value, now, window)
  local elapsed = time % window
  local start = time - elapsed
  local refunded = 0
  if stamp == NEVER or stamp == start then
    refunded = min(refund, count)
  end
  local earlier = 0
  if stamp == NEVER or stamp + window == start then
    earlier = min(refund - refunded, previous)
  end
  local kept = count - refunded
  local weighed = (previous - earlier) * (window - elapsed)
  local weight = weighed < NEVER and (weighed - weighed % window) / window
    or mul_div(window - elapsed, previous - earlier, window)
  local added = min(charge, max(0, 2 * limit - weight - kept))
  local changed = kept + added
  local units = refunded + earlier + added
  if changed ~= count or earlier > 0 then
    return units, sliding_window_state(time, changed, previous - earlier), start + 2 * window - now, count > 0
  end
  return units
end
