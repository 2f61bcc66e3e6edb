-- Levels that fall by `limit` a tick.
--
-- 21 bytes, 7 for each number: the last time seen, the level then, and when the key expires, all in ticks. An
-- expiry suffices if it is no sooner than the time when the level is 0, and no later than a window after that.
-- A level of 2^52 or more has 29 bytes, as written by wide.lua.

local FALLING, FALLING_SIZE = '>I7I7I7', 21
local WIDE, WIDE_SIZE, WIDE_MARK = '>BI7I7I7I7', 29, 255

-- Returns the level of `value` at the later one of the last time seen and `now`, with this time; what was found; and
-- when the key expires. No value, a foreign value and a state more than a window ahead of `now` are a new state.
local function read_falling(value, now, window, limit)
  if not value then
    return now, 0, FRESH, 0
  end
  local time, level, expiry
  if #value == FALLING_SIZE then
    time, level, expiry = unpack_at(FALLING, value)
  elseif #value == WIDE_SIZE and value:byte() == WIDE_MARK then
    -- No bucket that reads it here has a deeper debt. The key is rewritten, because its size differs.
    time, level, expiry = unpack_at('>I7', value, 2), NEVER - 1 - window, 0
  else
    return now, 0, FOREIGN, 0
  end
  if level >= NEVER then
    return now, 0, FOREIGN, 0
  end
  if time > now + window then
    return now, 0, AHEAD, 0
  end
  if time > now then
    return time, level, KEPT, expiry
  end
  -- If the product is not exact, it is above every level.
  return now, max(0, level - (now - time) * limit), KEPT, expiry
end

-- Writes a level at `time` that is 0 at `now + reset`; `expiry` is the previous state's. Returns the state, the expiry
-- of its key, in ticks from now, and whether the existing expiry suffices.
local function write_falling(time, level, expiry, now, reset, window)
  local need = now + reset
  if need <= expiry and expiry <= need + window then
    return pack(FALLING, time, level, expiry), reset, true
  end
  return pack(FALLING, time, level, need + window), reset + window, false
end

-- The usual case in one step, for a level that may be up to `room` after `taken` was added: returns that level and
-- the expiry, which suffices; nothing in other cases.
local function usual_level(value, now, window, limit, room, taken)
  if #value == FALLING_SIZE then
    local time, level, expiry = unpack_at(FALLING, value)
    level = level - (now - time) * limit
    level = level < 0 and taken or level + taken
    local reset, lasts = level / limit, expiry - now
    if time <= now and level <= room and reset <= lasts and lasts <= reset + window then
      return level, expiry
    end
  end
end
