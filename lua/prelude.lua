-- Numbers and state, for every algorithm.
--
-- All numbers are integers below 2^53, which Lua's doubles hold exactly. So a % b is exact, and (a - a % b) / b is
-- the quotient rounded down; a product may be larger: see mul_div. Times are ticks: 1 us for windows up to 60 s,
-- else 1 ms. There are few functions, because a script creates each of them in every call.
--
-- Where bytes count, states keep the low 44 bits of a time. No state matters for 2^43 ticks, so the whole time is
-- the nearest one to the clock with these low bits.

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

-- a * b / c rounded down, and the remainder, where the product may be above 2^53. It takes 11 bits of b at a time,
-- because the remainder times 2^11 and the bits times a are below 2^52 each; a <= c < 2^41, b < 2^55.
local function mul_div(a, b, c)
  local quotient, rest, place = 0, 0, 2 ^ 44
  repeat
    local low = b % place
    local sum = rest * 2048 + (b - low) / place * a
    b, rest = low, sum % c
    quotient, place = quotient * 2048 + (sum - rest) / c, place / 2048
  until place < 1
  return quotient, rest
end

-- A TTL in us as an argument of PX, which counts whole milliseconds from a whole one. After a limit was lowered far,
-- the TTL may be longer than doubles count exactly: then 142 years are enough.
local function millis(life)
  life = min(life, NEVER)
  return (life - life % 1000) / 1000 + 2
end

-- The whole time whose low bits are `low`, nearest to `now`.
local function whole_time(low, now)
  return now - ((now - low + HALF_SPAN) % TIME_SPAN - HALF_SPAN)
end
