-- Decides and adjusts, in the order given.
--
-- keys      every key of the batch, once
-- args[1]   the time in us, or '' for the server's
-- args[2]   the number of rules (1 byte), each rule as algorithm (1), flags (1), window, limit,
--           capacity, cost, floor (7 each), then the requests: the number of checks (1), each check
--           as the places of its key and its rule, from 1 (1 each)
--           flags: 1 enforced; 2 the tick is 1 ms; 4 tell the whole state; no decision but 8 a refund
--           or 16 a charge of `cost` units, with a stamp in place of the floor, or 32 a reset
--
-- Returns the time in us (7 bytes), for each check a byte of fits + 2 * found, then for each check
-- whose state was found that state; of a log the digest, or its size (4) and the whole. Of what
-- is no decision, fits says that it changed something.

local ALGORITHMS = {
  [1] = fixed_window,
  [2] = token_bucket,
  [3] = sliding_window,
  [4] = sliding_log,
  [5] = leaky_bucket,
}

local ADJUSTMENTS = {
  [1] = fixed_window_adjust,
  [2] = token_bucket_adjust,
  [3] = sliding_window_adjust,
  [4] = sliding_log_adjust,
  [5] = leaky_bucket_adjust,
}

-- By what a request is: one check, several, an adjustment.
local REQUESTS = {
  one = decide_check,
  several = decide_checks,
  adjustment = adjust_key,
}

local function read_rules(packed, now_us)
  local rules, position = {}, 2
  for i = 1, packed:byte() do
    local algorithm, flags, window, limit, capacity, cost, floor, behind =
      unpack_at('>BBI7I7I7I7I7', packed, position)
    local tick = flags % 4 >= 2 and 1000 or 1
    rules[i] = {
      decide = ALGORITHMS[algorithm], adjust = flags >= 8 and ADJUSTMENTS[algorithm],
      enforced = flags % 2 == 1, tick = tick, whole = flags % 8 >= 4,
      charges = flags % 32 >= 16, resets = flags >= 32,
      now = (now_us - now_us % tick) / tick, window = window, limit = limit, capacity = capacity,
      cost = cost, floor = floor,
    }
    position = behind
  end
  return rules, position
end

local function batch(keys, args)
  bind()
  local time = args[1] == '' and call('TIME')
  local now_us = time and time[1] * 1000000 + time[2] or tonumber(args[1])
  local rules, position = read_rules(args[2], now_us)
  local checks, flags, views, expiries = { args[2]:byte(position, -1) }, {}, {}, {}
  local values = call('MGET', unpack(keys))
  local all = {
    server_time = time, rules = rules, checks = checks, values = values, expiries = expiries,
    flags = flags, views = views,
  }
  local place = 1
  while place < #checks do
    local count, key, rule = checks[place], checks[place + 1], rules[checks[place + 2]]
    if rule.adjust then
      REQUESTS.adjustment(all, key, rule)
    elseif count == 1 then
      REQUESTS.one(all, key, rule)
    else
      REQUESTS.several(all, place + 1, count)
    end
    place = place + 1 + 2 * count
  end
  for key, expiry in pairs(expiries) do
    if not values[key] then
      call('DEL', keys[key])
    elseif expiry then
      call('SET', keys[key], values[key], 'PX', (expiry - expiry % 1000) / 1000 + 1)
    else
      call('SET', keys[key], values[key], 'KEEPTTL')
    end
  end
  return pack('>I7', now_us) .. string.char(unpack(flags)) .. table.concat(views)
end
