-- Leaky bucket: requests leave one after the other, `window / limit` apart.
--
-- value     a falling level: the backlog, which is `window` for each slot taken; the next free slot is
--           backlog / limit after the last time seen
-- now       ticks
-- window    ticks
-- limit     slots per window
-- capacity  waiting places and one more
-- cost      slots to take; 0 is a peek
-- floor     places that must remain
-- refund, charge   slots refunded or charged
-- stamp     the end of the queue when the slots were taken, or NEVER for any
--
-- leaky_bucket returns fits, found, and if slots were taken state, expiry and whether the expiry stays;
-- leaky_bucket_adjust returns the units refunded or charged, and the same three values if the state changes;
-- leaky_bucket_room returns the highest backlog at which `cost` slots have been taken.

local function leaky_bucket(value, now, window, limit, capacity, cost, floor)
  local time, backlog, found, expiry = read_falling(value, now, window, limit)
  local fits = cost == 0
    or (cost + floor <= capacity and backlog <= (capacity - 1 - floor) * window)
  if not fits or cost == 0 then
    return fits, found
  end
  backlog = backlog + cost * window
  local reset = time - now + div_ceil(backlog, limit)
  return true, found, write_falling(time, backlog, expiry, now, reset, window)
end

local function leaky_bucket_adjust(value, now, window, limit, capacity, refund, charge, stamp)
  local time, backlog, _, expiry = read_falling(value, now, window, limit)
  if stamp ~= NEVER and stamp ~= min(NEVER - 1, time + div_ceil(backlog, limit)) then
    refund = 0
  end
  local kept = max(0, backlog - min(refund, div_ceil(backlog, window)) * window)
  local room = max(0, 2 * capacity * window - kept)
  local charged = min(charge, (room - room % window) / window)
  local changed = kept + charged * window
  local units = charge > 0 and charged or min(refund, div_ceil(backlog, window))
  if changed ~= backlog then
    local reset = time - now + div_ceil(changed, limit)
    return units, write_falling(time, changed, expiry, now, reset, window)
  end
  return units
end

local function leaky_bucket_room(window, capacity, cost, floor)
  return cost + floor <= capacity and (capacity - 1 - floor + cost) * window or -1
end
