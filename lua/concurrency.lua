-- Concurrency: slots that requests hold while they are served, so that at most `limit` of them are at once.
--
-- value     cohorts of 11 bytes, oldest first: the time of the first slot (7), and the number of slots (4)
-- now       ticks
-- window    ticks: the TTL of a slot that is not renewed; its cohort counts for an eighth more
-- limit     slots
-- cost      slots to take; 0 is a peek
-- floor     slots that must remain
-- refund, charge   slots to release or take; a renewal has both
-- stamp     the time of the slots' cohort, or NEVER for any
--
-- concurrency returns fits, found, and if slots were taken state, expiry and whether the expiry stays; and for a
-- found state its digest: the number of cohorts (1 byte), and the state;
-- concurrency_adjust returns the slots released or charged, for a renewal the slots that were still there, and
-- the same three values if the state changes.

local COHORT, COHORT_SIZE, MAX_COHORTS, PARTS, MAX_HELD = '>I7I4', 11, 16, 8, 2 ^ 31

-- Returns the times and counts of the cohorts, their number, and what was found.
local function concurrency_read(value, now, window)
  local times, counts = {}, {}
  if not value then
    return times, counts, 0, FRESH
  end
  local size = #value / COHORT_SIZE
  if size % 1 ~= 0 or size < 1 or size > MAX_COHORTS then
    return times, counts, 0, FOREIGN
  end
  for i = 1, size do
    times[i], counts[i] = unpack_at(COHORT, value, COHORT_SIZE * (i - 1) + 1)
    if i > 1 and times[i] <= times[i - 1] then
      return times, counts, 0, FOREIGN
    end
  end
  if times[size] >= NEVER then
    return times, counts, 0, FOREIGN
  end
  if times[size] > now + window then
    return times, counts, 0, AHEAD
  end
  return times, counts, size, KEPT
end

-- The index of the first cohort that counts at `time` and has slots, or the index after the last one.
local function concurrency_live(times, counts, size, time, life)
  local from = 1
  while from <= size and (counts[from] == 0 or times[from] + life <= time) do
    from = from + 1
  end
  return from
end

-- The bytes of the cohorts `from` to `to`.
local function concurrency_cohorts(times, counts, from, to)
  local cohorts = {}
  for i = from, to do
    cohorts[i - from + 1] = pack(COHORT, times[i], counts[i])
  end
  return table.concat(cohorts)
end

-- The live cohorts with `taken` more slots, the stamp of these slots, and whether the size is unchanged.
local function concurrency_with(times, counts, size, time, window, taken)
  local part = div_ceil(window, PARTS)
  local from = concurrency_live(times, counts, size, time, part + window)
  if from <= size and time < times[size] + part then
    counts[size] = counts[size] + taken
    return concurrency_cohorts(times, counts, from, size), times[size], from == 1
  end
  return concurrency_cohorts(times, counts, from, size) .. pack(COHORT, time, taken), time, false
end

local function concurrency(value, now, window, limit, _, cost, floor)
  local times, counts, size, found = concurrency_read(value, now, window)
  local life = div_ceil(window, PARTS) + window
  local time = max(times[size] or 0, now)
  local held = 0
  for i = concurrency_live(times, counts, size, time, life), size do
    held = held + counts[i]
  end
  local digest = found == KEPT and string.char(size) .. value or nil
  local fits = cost == 0 or held + cost + floor <= limit
  if not fits or cost == 0 then
    return fits, found, nil, nil, nil, digest
  end
  local state, stamp, stands = concurrency_with(times, counts, size, time, window, cost)
  return true, found, state, stamp + life - now, stands, digest
end

local function concurrency_adjust(value, now, window, limit, _, refund, charge, stamp)
  local times, counts, size = concurrency_read(value, now, window)
  local life = div_ceil(window, PARTS) + window
  local time = max(times[size] or 0, now)
  local refunded, held = 0, 0
  for i = size, 1, -1 do
    if times[i] + life > time then
      if stamp == NEVER or stamp == times[i] then
        local back = min(refund - refunded, counts[i])
        counts[i] = counts[i] - back
        refunded = refunded + back
      end
      held = held + counts[i]
    end
  end
  local most = refund > 0 and MAX_HELD or 2 * limit
  local charged = min(charge, max(0, most - held))
  local units = charge > 0 and refund == 0 and charged or refunded
  if refunded == 0 and charged == 0 then
    return units
  end
  if charged > 0 then
    local state, taken_at, stands = concurrency_with(times, counts, size, time, window, charged)
    return units, state, taken_at + life - now, stands
  end
  local last = size
  while last > 1 and counts[last] == 0 do
    last = last - 1
  end
  local reset = counts[last] > 0 and times[last] + life - now or 0
  -- The size is the same, and no slot lives longer.
  return units, concurrency_cohorts(times, counts, 1, size), max(reset, window), true
end
