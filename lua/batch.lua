-- Decides and adjusts, in the order given. Arguments and reply are in wire.lua.

local function read_rules(packed, now_us, server_time)
  local rules, position = {}, 2
  for i = 1, packed:byte() do
    local algorithm, flags, window, limit, capacity, cost, floor, behind =
      unpack_at(RULE, packed, position)
    local tick, kind, room = flags % 4 >= 2 and 1000 or 1, flags % 64, ROOMS[algorithm]
    rules[i] = {
      decide = ALGORITHMS[algorithm], adjust = kind >= 8 and ADJUSTMENTS[algorithm],
      enforced = flags % 2 == 1, tick = tick, whole = flags % 8 >= 4,
      refunds = kind % 16 >= 8, charges = kind % 32 >= 16, resets = kind >= 32, repeats = flags >= 64,
      apart = kind >= 8,
      now = (now_us - now_us % tick) / tick, window = window, limit = limit, capacity = capacity,
      cost = cost, floor = floor, taken = cost * window,
      room = room and server_time and cost > 0 and flags < 8 and room(window, capacity, cost, floor),
    }
    position = behind
  end
  return rules, position
end

local function write(key, value, expiry)
  if not value then
    call('DEL', key)
  elseif expiry then
    call('SET', key, value, 'PX', millis(expiry))
  else
    -- The size is the same, and the expiry stays.
    call('SETRANGE', key, '0', value)
  end
end

-- Adjusts, and calls `decide` for the requests in between.
local function decide_all(keys, args, decide)
  bind()
  local time = args[1] == '' and call('TIME')
  local now_us = time and time[1] * 1000000 + time[2] or tonumber(args[1])
  local rules, position = read_rules(args[2], now_us, time)
  local checks, levels, expiries, first = { args[2]:byte(position, -1) }, {}, {}, 1
  local all = {
    server_time = time, rules = rules, checks = checks, values = call('MGET', unpack(keys)),
    levels = levels, nows = {}, before = {}, states = {}, ends = {}, expiries = expiries, flags = {},
    views = {}, replied = 0,
  }
  while first <= #checks do
    local rule = rules[checks[first + 2]]
    if rule.adjust then
      current(all, checks[first + 1])
      adjust_key(all, checks[first + 1], rule)
      first = first + 3
    else
      first = decide(all, first, #checks)
    end
  end
  for i = 1, #keys do
    local level, expiry = levels[i], expiries[i]
    if expiry ~= nil then
      write(keys[i], level and current(all, i) or all.values[i], expiry)
    elseif level then
      -- The expiry behind them stays.
      call('SETRANGE', keys[i], '0', pack('>I7I7', all.nows[i], level))
    end
  end
  return reply(now_us, all.flags, all.views, all.replied)
end

local function batch(keys, args)
  return decide_all(keys, args, decide_requests)
end
