-- Numbers and state, for every algorithm.
--
-- All numbers are integers below 2^52, which Lua's doubles hold exactly; math.floor(a / b) of two
-- such numbers is the true quotient rounded down. Times are ticks: 1 us for windows up to 60 s,
-- else 1 ms.
--
-- States keep the low 44 bits of a time. No state matters for 2^43 ticks, so the whole time is the
-- nearest one to the clock that has those low bits. A level is 12 bytes: such a time, then 52 bits
-- of an amount.

local NEVER = 2 ^ 52
local KEPT, FRESH, AHEAD, FOREIGN = 0, 1, 2, 3
local TIME_SPAN, LOW_SPAN = 2 ^ 44, 2 ^ 48

local floor_of, max, min = math.floor, math.max, math.min
local pack, unpack_at = struct.pack, struct.unpack

-- The smallest integer not below a / b.
local function div_ceil(a, b)
  return floor_of((a + b - 1) / b)
end

-- The whole time whose low bits are `low`, nearest to `now`.
local function whole_time(low, now)
  local behind = (now - low) % TIME_SPAN
  if behind >= TIME_SPAN / 2 then
    behind = behind - TIME_SPAN
  end
  return now - behind
end

-- value: the bytes under a key, or false. Returns time, amount, and what was found: nothing, a
-- foreign value and a state more than a window ahead of `now` all are a new state.
local function read_level(value, now, window)
  if not value then
    return now, 0, FRESH
  end
  if #value ~= 12 then
    return now, 0, FOREIGN
  end
  local high, low = unpack_at('>I6I6', value)
  local amount_high = high % 16
  local time = whole_time((high - amount_high) / 16, now)
  if time > now + window then
    return now, 0, AHEAD
  end
  return time, amount_high * LOW_SPAN + low, KEPT
end

-- As read_level, for a level that falls by `limit` a tick: as of the last time seen or `now`.
local function read_falling(value, now, window, limit)
  local time, level, found = read_level(value, now, window)
  local elapsed = max(0, now - time)
  if elapsed > floor_of(level / limit) then
    return max(time, now), 0, found
  end
  return max(time, now), level - elapsed * limit, found
end

local function write_level(time, amount)
  local amount_low = amount % LOW_SPAN
  return pack('>I6I6', (time % TIME_SPAN) * 16 + (amount - amount_low) / LOW_SPAN, amount_low)
end

-- The time in microseconds: the server's, or the one given.
local function read_clock(given)
  if given ~= '' then
    return tonumber(given)
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Writes a value that says nothing after `reset` us: by then it is gone.
local function write(key, value, reset)
  redis.call('SET', key, value, 'PX', max(1, div_ceil(reset, 1000)))
end
