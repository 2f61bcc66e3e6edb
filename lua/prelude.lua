-- Numbers and state, for every algorithm.
--
-- All numbers are integers below 2^52, which Lua's doubles hold exactly; so is a % b of two of them,
-- and (a - a % b) / b is the quotient rounded down. Times are ticks: 1 us for windows up to 60 s,
-- else 1 ms. There are few functions, as a script makes each of them anew in every call.
--
-- Where bytes count, states keep the low 44 bits of a time. No state matters for 2^43 ticks, so the
-- whole time is the nearest one to the clock that has those low bits.

local NEVER = 2 ^ 52
local KEPT, FRESH, AHEAD, FOREIGN, OUTSIDE = 0, 1, 2, 3, 4
local TIME_SPAN, HALF_SPAN, LOW_SPAN = 2 ^ 44, 2 ^ 43, 2 ^ 48

-- Functions of Redis. A function library has no access to them while it is loaded, so each call binds them.
local call, pack, unpack_at, max, min

local function bind()
  call, pack, unpack_at, max, min = redis.call, struct.pack, struct.unpack, math.max, math.min
end

-- The smallest integer not below a / b.
local function div_ceil(a, b)
  local sum = a + b - 1
  return (sum - sum % b) / b
end

-- A life in us, for PX: which counts whole milliseconds, from a whole one. After a limit was lowered
-- far, it may be longer than doubles count exactly: then 142 years are enough.
local function millis(life)
  life = min(life, NEVER)
  return (life - life % 1000) / 1000 + 2
end

-- The whole time whose low bits are `low`, nearest to `now`.
local function whole_time(low, now)
  return now - ((now - low + HALF_SPAN) % TIME_SPAN - HALF_SPAN)
end
