-- Sliding window counter: the count of the aligned window, and of the one before by the share of it
-- that the sliding window still covers: floor(previous * (window - elapsed) / window) + count.
--
-- value     18 bytes: the last time seen, the count of its window, and that of the one before
-- now       ticks
-- window    ticks
-- limit     units per window
-- cost      units to take; 0 only looks
-- floor     units that must remain
-- refund, charge   units given back or added
-- stamp     the start of the window the units were taken from, or NEVER for any
--
-- sliding_window returns fits, remaining, wait, reset, delay, stamp, state, found;
-- sliding_window_adjust returns the new state and its reset, or nothing.

local function sliding_window_current(value, now, window)
  if not value then
    return now, 0, 0, FRESH
  end
  if #value ~= 18 then
    return now, 0, 0, FOREIGN
  end
  local last, count, previous = unpack_at('>I6I6I6', value)
  last = whole_time(last, now)
  if last > now + window then
    return now, 0, 0, AHEAD
  end
  local time = max(last, now)
  local windows = floor_of(time / window) - floor_of(last / window)
  if windows == 0 then
    return time, count, previous, KEPT
  end
  if windows == 1 then
    return time, 0, count, KEPT
  end
  return time, 0, 0, KEPT
end

local function sliding_window_state(time, count, previous)
  return pack('>I6I6I6', time % TIME_SPAN, count, previous)
end

-- Ticks from the window's start until no more than `room` units are counted, which they are now.
-- In closed form: floor(p * (w - e) / w) <= a holds from e = w - ceil((a + 1) * w / p) + 1 on.
local function sliding_window_room_after(count, previous, window, room)
  if count <= room then
    local elapsed = window + 1 - div_ceil((room - count + 1) * window, previous)
    return min(elapsed, window)
  end
  return 2 * window + 1 - div_ceil((room + 1) * window, count)
end

local function sliding_window(value, now, window, limit, _, cost, floor)
  local time, count, previous, found = sliding_window_current(value, now, window)
  local elapsed = time % window
  local start = time - elapsed
  local weight = floor_of(previous * (window - elapsed) / window)
  local fits = cost == 0 or weight + count + cost + floor <= limit
  if fits then
    count = count + cost
  end
  local remaining = max(0, limit - weight - count - floor)
  local need = fits and 1 or cost
  local wait = 0
  if not fits or remaining == 0 then
    wait = NEVER
    if need + floor <= limit then
      wait = start + sliding_window_room_after(count, previous, window, limit - floor - need) - now
    end
  end
  local reset = 0
  if count > 0 then
    reset = start + 2 * window - now
  elseif previous > 0 then
    reset = start + window - now
  end
  return fits, remaining, wait, reset, 0, start, sliding_window_state(time, count, previous), found
end

local function sliding_window_adjust(value, now, window, limit, _, refund, charge, stamp)
  local time, count, previous = sliding_window_current(value, now, window)
  local start = time - time % window
  local refunded = 0
  if stamp == NEVER or stamp == start then
    refunded = min(refund, count)
  end
  local earlier = 0
  if stamp == NEVER or stamp + window == start then
    earlier = min(refund - refunded, previous)
  end
  local kept = count - refunded
  local changed = min(kept + charge, max(kept, 2 * limit))
  if changed ~= count or earlier > 0 then
    return sliding_window_state(time, changed, previous - earlier), start + 2 * window - now
  end
end
