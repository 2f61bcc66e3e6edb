-- Bans: strikes against a key, and the time until which it is banned. Mirror of src/core/algorithm/ban.rs.
--
-- value     28 bytes: the end of the last ban, its length, the start of the window of strikes, and their number,
--           7 each
-- now       ms, like all times
-- window    the window of strikes
-- limit     the first ban in multiples of FIRST; below FIRST, twice the strikes that begin a ban, and 1 if denials
--           extend it
-- capacity  the factor from one ban to the next, in thousandths, in multiples of GROWTH; below GROWTH, the longest
--           ban
--
-- ban returns true if the key is not banned, and found; ban_adjust strikes once, whatever the charge, and returns
-- the number of strikes that count, 0 during a ban, and state and expiry if the state changes.

local BAN, BAN_SIZE, FIRST, GROWTH = '>I7I7I7I7', 28, 2 ^ 18, 2 ^ 35

local function read_ban(value, now, within, most)
  if not value then
    return 0, 0, 0, 0, FRESH
  end
  if #value ~= BAN_SIZE then
    return 0, 0, 0, 0, FOREIGN
  end
  local ends, length, start, strikes = unpack_at(BAN, value)
  if ends - length > now + most or start > now + within then
    return 0, 0, 0, 0, AHEAD
  end
  if length > most then
    return ends - length + most, most, start, strikes, KEPT
  end
  return ends, length, start, strikes, KEPT
end

local function ban(value, now, window, _, capacity)
  local ends, _, _, _, found = read_ban(value, now, window, capacity % GROWTH)
  return now >= ends, found
end

local function ban_adjust(value, now, window, limit, capacity)
  local most, code, units = capacity % GROWTH, limit % FIRST, 1
  local growth, time = (capacity - most) / GROWTH, (limit - code) / FIRST
  local ends, length, start, strikes = read_ban(value, now, window, most)
  if now < ends then
    if code % 2 == 0 then
      return 0
    end
    ends, units = max(ends, now + length), 0
  else
    if strikes == 0 or now >= start + window then
      start, strikes = now, 0
    end
    start, strikes = min(start, now), strikes + 1
    if 2 * strikes >= code - code % 2 then
      if length == 0 or now >= ends + most then
        length = time
      else
        length = min(most, max(time, div_ceil(length * growth, 1000)))
      end
      ends, start, strikes = now + length, 0, 0
    end
  end
  local matters = growth > 1000 and length > 0 and ends + most or ends
  local counts = strikes > 0 and start + window or 0
  return units, pack(BAN, ends, length, start, strikes), max(matters, counts) - now
end
