-- Token bucket: `capacity` units, refilled continuously at `limit` per window.
--
-- value     a level: the last time seen, and the deficit (capacity - tokens) * window, which falls
--           by `limit` a tick: so the refill is exact for any limit and window
-- now       ticks
-- window    ticks
-- limit     units per window
-- capacity  units
-- cost      units to take; 0 only looks
-- floor     units that must remain
-- refund, charge   units given back or added
--
-- token_bucket returns fits, remaining, wait, reset, delay, stamp, state, found;
-- token_bucket_adjust returns the new state and its reset, or nothing.

local function token_bucket(value, now, window, limit, capacity, cost, floor)
  local time, deficit, found = read_falling(value, now, window, limit)
  local fits = cost == 0
    or (cost + floor <= capacity and deficit <= (capacity - cost - floor) * window)
  if fits then
    deficit = deficit + cost * window
  end
  local remaining = max(0, floor_of(max(0, capacity * window - deficit) / window) - floor)
  local need = fits and 1 or cost
  local lag = time - now
  local wait = 0
  if not fits or remaining == 0 then
    wait = NEVER
    if need + floor <= capacity then
      wait = lag + div_ceil(deficit - (capacity - need - floor) * window, limit)
    end
  end
  local reset = deficit > 0 and lag + div_ceil(deficit, limit) or 0
  return fits, remaining, wait, reset, 0, time, write_level(time, deficit), found
end

local function token_bucket_adjust(value, now, window, limit, capacity, refund, charge)
  local time, deficit = read_falling(value, now, window, limit)
  local kept = max(0, deficit - min(refund, div_ceil(deficit, window)) * window)
  local room = max(0, 2 * capacity * window - kept)
  local changed = kept + min(min(charge, 2 * capacity) * window, room)
  if changed ~= deficit then
    return write_level(time, changed), time - now + div_ceil(changed, limit)
  end
end
