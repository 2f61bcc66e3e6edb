-- Bans: strikes against a key, and until when it is refused. The same as src/core/algorithm/ban.rs.
--
-- State: the end of the last ban, its length, the start of the window of strikes, and how many there
-- are in it, 7 bytes each. All times are ms.
--
-- The numbers of its rule: `window` is that of strikes, and `capacity` the longest ban.
-- limit     the strikes that begin a ban, and in multiples of PART: 1 if refusals extend it, and more
--           for a decision (bans.lua)
-- cost      the first ban, and in multiples of SHARE its growth in thousandths

local BAN, BAN_SIZE, SHARE, PART = '>I7I7I7I7', 28, 2 ^ 35, 2 ^ 20

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

-- Looks whether the key is not banned.
local function ban(value, now, within, _, most)
  local ends, _, _, _, found = read_ban(value, now, within, most)
  return now >= ends, found
end

-- Strikes once; returns how many count, which is none if the strike extends a ban.
local function ban_adjust(value, now, within, limit, most, _, terms)
  local ends, length, start, strikes = read_ban(value, now, within, most)
  local time, after, units = terms % SHARE, limit % PART, 1
  local growth = (terms - time) / SHARE
  if now < ends then
    if (limit - after) / PART % 2 == 0 then
      return 0
    end
    ends, units = max(ends, now + length), 0
  else
    if strikes == 0 or now >= start + within then
      start, strikes = now, 0
    end
    start, strikes = min(start, now), strikes + 1
    if strikes >= after then
      if length == 0 or now >= ends + most then
        length = time
      else
        length = min(most, max(time, div_ceil(length * growth, 1000)))
      end
      ends, start, strikes = now + length, 0, 0
    end
  end
  local matters = growth > 1000 and length > 0 and ends + most or ends
  local counts = strikes > 0 and start + within or 0
  return units, pack(BAN, ends, length, start, strikes), max(matters, counts) - now
end
