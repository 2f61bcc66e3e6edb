-- Token bucket: `capacity` units, refilled continuously at `limit` per window.
--
-- value     a falling level: the deficit (capacity - tokens) * window, so that the refill is exact for
--           any limit and window
-- now       ticks
-- window    ticks
-- limit     units per window
-- capacity  units
-- cost      units to take; 0 is a peek
-- floor     units that must remain
-- refund, charge   units refunded or charged
-- stamp     the time the units were taken at, or NEVER for any; units refilled since then are not refunded
--
-- token_bucket returns fits, found, and if units were taken state, expiry and whether the expiry stays;
-- token_bucket_adjust returns the units refunded or charged, and the same three values if the state changes;
-- token_bucket_room returns the highest deficit at which `cost` units have been taken.

local function token_bucket(value, now, window, limit, capacity, cost, floor)
  local time, deficit, found, expiry = read_falling(value, now, window, limit)
  local fits = cost == 0
    or (cost + floor <= capacity and deficit <= (capacity - cost - floor) * window)
  if not fits or cost == 0 then
    return fits, found
  end
  deficit = deficit + cost * window
  -- Like div_ceil, without a call.
  local sum = deficit + limit - 1
  local reset = time - now + (sum - sum % limit) / limit
  return true, found, write_falling(time, deficit, expiry, now, reset, window)
end

local function token_bucket_adjust(value, now, window, limit, capacity, refund, charge, stamp)
  local time, deficit, _, expiry = read_falling(value, now, window, limit)
  local refilled = stamp == NEVER and 0 or max(0, time - stamp) * limit
  refund = min(refund, max(2 * capacity, div_ceil(deficit, window)))
  local kept = max(0, deficit - max(0, refund * window - refilled))
  local room = max(0, 2 * capacity * window - kept)
  local charged = min(charge, (room - room % window) / window)
  local changed = kept + charged * window
  local units = charge > 0 and charged or div_ceil(deficit - kept, window)
  if changed ~= deficit then
    local reset = time - now + div_ceil(changed, limit)
    return units, write_falling(time, changed, expiry, now, reset, window)
  end
  return units
end

local function token_bucket_room(window, capacity, _, floor)
  return (capacity - floor) * window
end
