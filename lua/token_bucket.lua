-- Token bucket: `capacity` units, refilled continuously at `limit` per window.
--
-- value     a falling level: the deficit (capacity - tokens) * window, so that the refill is exact for
--           any limit and window
-- now       ticks
-- window    ticks
-- limit     units per window
-- capacity  units
-- cost      units to take; 0 only looks
-- floor     units that must remain
-- refund, charge   units given back or added
--
-- token_bucket returns fits, found, and if units were taken state, expiry and whether that stands;
-- token_bucket_adjust returns the same three of the changed state, or nothing;
-- token_bucket_room returns the highest deficit at which `cost` units have been taken.

local function token_bucket(value, now, window, limit, capacity, cost, floor)
  local time, deficit, found, expiry = read_falling(value, now, window, limit)
  local fits = cost == 0
    or (cost + floor <= capacity and deficit <= (capacity - cost - floor) * window)
  if not fits or cost == 0 then
    return fits, found
  end
  deficit = deficit + cost * window
  -- As div_ceil, without a call.
  local sum = deficit + limit - 1
  local reset = time - now + (sum - sum % limit) / limit
  return true, found, write_falling(time, deficit, expiry, now, reset, window)
end

local function token_bucket_adjust(value, now, window, limit, capacity, refund, charge)
  local time, deficit, _, expiry = read_falling(value, now, window, limit)
  local kept = max(0, deficit - min(refund, div_ceil(deficit, window)) * window)
  local room = max(0, 2 * capacity * window - kept)
  local changed = kept + min(min(charge, 2 * capacity) * window, room)
  if changed ~= deficit then
    local reset = time - now + div_ceil(changed, limit)
    return write_falling(time, changed, expiry, now, reset, window)
  end
end

local function token_bucket_room(window, capacity, _, floor)
  return (capacity - floor) * window
end
