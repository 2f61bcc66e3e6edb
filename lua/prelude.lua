-- Numbers and state, for every algorithm.
--
-- All numbers are integers below 2^52, which Lua's doubles hold exactly; so is a % b of two of them,
-- and (a - a % b) / b is the quotient rounded down. Times are ticks: 1 us for windows up to 60 s,
-- else 1 ms. There are few functions, as a script makes each of them anew in every call.
--
-- States keep the low 44 bits of a time. No state matters for 2^43 ticks, so the whole time is the
-- nearest one to the clock that has those low bits. A level is 12 bytes: such a time, then 52 bits
-- of an amount. One that falls has a byte more: when its key expires.

local NEVER = 2 ^ 52
local KEPT, FRESH, AHEAD, FOREIGN = 0, 1, 2, 3
local TIME_SPAN, HALF_SPAN, LOW_SPAN = 2 ^ 44, 2 ^ 43, 2 ^ 48

-- Expiries of falling levels are whole sixteenths of a window; so many can be told apart.
local STEPS, MOST_STEPS = 16, 255

-- What Redis lends. A function library does not see it while it is loaded, so each call binds it.
local call, pack, unpack_at, max, min

local function bind()
  call, pack, unpack_at, max, min = redis.call, struct.pack, struct.unpack, math.max, math.min
end

-- The smallest integer not below a / b.
local function div_ceil(a, b)
  local sum = a + b - 1
  return (sum - sum % b) / b
end

-- The whole time whose low bits are `low`, nearest to `now`.
local function whole_time(low, now)
  return now - ((now - low + HALF_SPAN) % TIME_SPAN - HALF_SPAN)
end

-- value: the bytes under a key, or false; format, size: what they must be. Returns time, amount, what
-- was found, and the mark of the expiry: nothing, a foreign value and a state more than a window ahead
-- of `now` all are a new state.
local function read_level(value, format, size, now, window)
  if not value then
    return now, 0, FRESH, 0
  end
  if #value ~= size then
    return now, 0, FOREIGN, 0
  end
  local high, low, mark = unpack_at(format, value)
  local amount_high = high % 16
  local time = now - ((now - (high - amount_high) / 16 + HALF_SPAN) % TIME_SPAN - HALF_SPAN)
  if time > now + window then
    return now, 0, AHEAD, 0
  end
  return time, amount_high * LOW_SPAN + low, KEPT, mark
end

local function write_level(time, amount)
  local low = amount % LOW_SPAN
  return pack('>I6I6', (time % TIME_SPAN) * 16 + (amount - low) / LOW_SPAN, low)
end

-- As read_level, for a level that falls by `limit` a tick: as of the last time seen or `now`; and the
-- mark of the expiry.
local function read_falling(value, now, window, limit)
  if not value then
    return now, 0, FRESH, 0
  end
  if #value ~= 13 then
    return now, 0, FOREIGN, 0
  end
  local high, low, mark = unpack_at('>I6I6B', value)
  local amount_high = high % 16
  local elapsed = (now - (high - amount_high) / 16 + HALF_SPAN) % TIME_SPAN - HALF_SPAN
  if elapsed < 0 then
    if elapsed < -window then
      return now, 0, AHEAD, 0
    end
    return now - elapsed, amount_high * LOW_SPAN + low, KEPT, mark
  end
  local level = amount_high * LOW_SPAN + low
  if elapsed > (level - level % limit) / limit then
    return now, 0, KEPT, mark
  end
  return now, level - elapsed * limit, KEPT, mark
end

-- A level at `time` that falls to 0 at `now + reset`; mark: that of the state before it. Returns the
-- state, when its key is to expire, in ticks from now, and whether the expiry it has will do: that is
-- no sooner than needed, and no later than a window after.
--
-- The mark is the expiry in steps, modulo 255, and one; 0 if the steps are too many.
local function write_falling(time, level, mark, now, reset, window)
  local step = window < STEPS and 1 or (window - window % STEPS) / STEPS
  local first, need = (now - now % step) / step, now + reset
  local low = level % LOW_SPAN
  local high = (time % TIME_SPAN) * 16 + (level - low) / LOW_SPAN
  if mark > 0 then
    local expiry = (first + (mark - 1 - first) % MOST_STEPS) * step
    if need <= expiry and expiry <= need + window then
      return pack('>I6I6B', high, low, mark), reset, true
    end
  end
  local last = (need - need % step) / step + STEPS - 1
  if last - first >= MOST_STEPS then
    return pack('>I6I6B', high, low, 0), reset, false
  end
  return pack('>I6I6B', high, low, last % MOST_STEPS + 1), last * step - now, false
end
