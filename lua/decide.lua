-- Decides a batch of requests, one after the other, each all or nothing over its checks.
--
-- keys      every key of the batch, once
-- args[1]   the time in us, or '' for the server's
-- args[2]   the requests: a byte with the number of checks, then each check as
--           key (2 bytes, from 1), algorithm (1), flags (1), window, limit, capacity, cost, floor
--           (7 each); flags: 1 enforced, 2 the tick is 1 ms
--
-- Returns for each check, in order: fits + 2 * found (1 byte), remaining, wait, reset, delay, stamp
-- (7 each; a wait of 2^52 never ends).

local ALGORITHMS = { fixed_window, token_bucket, sliding_window, sliding_log, leaky_bucket }
local CHECK, ANSWER = '>HBBI7I7I7I7I7', '>BI7I7I7I7I7'
local SINGLE = {} -- before a request of one check, which repeats nothing

-- Decides the check at `position` on the batch's values. `before` has, by key, what was there before
-- this request and the units it asks for so far: a repeat asks for their sum. Without it the check
-- only looks. Returns the position behind it, its answer, whether it refuses the request, and what
-- it writes: key, value, reset in us.
local function evaluate(batch, position, before)
  local key, algorithm, flags, window, limit, capacity, cost, floor, behind =
    unpack_at(CHECK, batch.packed, position)
  local tick, enforced = flags >= 2 and 1000 or 1, flags % 2 == 1
  local found_value, units = batch.values[key], before and cost or 0
  local earlier = units > 0 and before[key]
  if earlier then
    found_value, units = earlier.value, earlier.units + units
  end
  local fits, remaining, wait, reset, delay, stamp, value, found = ALGORITHMS[algorithm](
    found_value, floor_of(batch.now_us / tick), window, limit, capacity, units, floor)
  if units > 0 and before ~= SINGLE and (fits or enforced) then
    earlier = earlier or { value = found_value, reset = batch.resets[key] }
    earlier.units, before[key] = units, earlier
  end
  local answer = pack(ANSWER, (fits and 1 or 0) + 2 * found, remaining, wait, reset, delay, stamp)
  local writes = fits and units > 0
  return behind, answer, not fits and enforced, writes and key, value, reset * tick
end

-- Takes back what the checks of a refused request took, and looks again at those that did fit.
local function refuse(batch, position, first, before)
  for key, earlier in pairs(before) do
    batch.values[key], batch.resets[key] = earlier.value, earlier.reset
  end
  for i = first + 1, #batch.reply do
    local answer
    position, answer = evaluate(batch, position, nil)
    if batch.reply[i]:byte() % 2 == 1 then
      batch.reply[i] = answer
    end
  end
end

-- Decides the request whose checks begin at `position`; returns the position behind them.
local function decide_request(batch, position, checks)
  local values, resets, reply = batch.values, batch.resets, batch.reply
  local from, first, refused = position, #reply, false
  local before = checks > 1 and {} or SINGLE
  for i = 1, checks do
    local answer, refuses, key, value, reset
    position, answer, refuses, key, value, reset = evaluate(batch, position, before)
    reply[first + i] = answer
    refused = refused or refuses
    if key then
      values[key], resets[key] = value, reset
    end
  end
  if refused and checks > 1 then
    refuse(batch, from, first, before)
  end
  return position
end

local function decide(keys, args)
  local batch = {
    now_us = read_clock(args[1]),
    packed = args[2],
    values = redis.call('MGET', unpack(keys)),
    resets = {},
    reply = {},
  }
  local position = 1
  while position <= #batch.packed do
    position = decide_request(batch, position + 1, batch.packed:byte(position))
  end
  for key, reset in pairs(batch.resets) do
    write(keys[key], batch.values[key], reset)
  end
  return table.concat(batch.reply)
end
