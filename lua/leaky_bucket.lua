-- Leaky bucket: requests leave one after the other, `window / limit` apart.
--
-- value     a level: the last time seen, and the backlog, which is `window` for each slot taken and
--           falls by `limit` a tick; the next free slot is backlog / limit away
-- now       ticks
-- window    ticks
-- limit     slots per window
-- capacity  waiting places and one more
-- cost      slots to take; 0 only looks
-- floor     places that must remain
-- refund, charge   slots given back or added
-- stamp     the end of the line when the slots were taken, or NEVER for any
--
-- leaky_bucket returns fits, remaining, wait, reset, delay, stamp, state, found;
-- leaky_bucket_adjust returns the new state and its reset, or nothing.

local function leaky_bucket(value, now, window, limit, capacity, cost, floor)
  local time, backlog, found = read_falling(value, now, window, limit)
  local lag = time - now
  local delay = 0
  local fits = cost == 0
    or (cost + floor <= capacity and backlog <= (capacity - 1 - floor) * window)
  if fits then
    if cost > 0 and backlog > 0 then
      delay = lag + div_ceil(backlog, limit)
    end
    backlog = backlog + cost * window
  end
  local remaining = max(0, floor_of(max(0, capacity * window - backlog) / window) - floor)
  local need = fits and 1 or cost
  local wait = 0
  if not fits or remaining == 0 then
    wait = NEVER
    if need + floor <= capacity then
      wait = lag + div_ceil(backlog - (capacity - 1 - floor) * window, limit)
    end
  end
  local reset = backlog > 0 and lag + div_ceil(backlog, limit) or 0
  local stamp = time + div_ceil(backlog, limit)
  return fits, remaining, wait, reset, delay, stamp, write_level(time, backlog), found
end

local function leaky_bucket_adjust(value, now, window, limit, capacity, refund, charge, stamp)
  local time, backlog = read_falling(value, now, window, limit)
  if stamp ~= NEVER and stamp ~= time + div_ceil(backlog, limit) then
    refund = 0
  end
  local kept = max(0, backlog - min(refund, div_ceil(backlog, window)) * window)
  local room = max(0, 2 * capacity * window - kept)
  local changed = kept + min(min(charge, 2 * capacity) * window, room)
  if changed ~= backlog then
    return write_level(time, changed), time - now + div_ceil(changed, limit)
  end
end
