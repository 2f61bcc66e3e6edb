-- Decides and adjusts, in the order given. Arguments and answer are those of wire.lua.

local function read_rules(packed, now_us)
  local rules, position = {}, 2
  for i = 1, packed:byte() do
    local algorithm, flags, window, limit, capacity, cost, floor, behind =
      unpack_at(RULE, packed, position)
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
      adjust_key(all, key, rule)
    elseif count == 1 then
      decide_check(all, key, rule)
    else
      decide_checks(all, place + 1, count)
    end
    place = place + 1 + 2 * count
  end
  for key, expiry in pairs(expiries) do
    if not values[key] then
      call('DEL', keys[key])
    elseif expiry then
      call('SET', keys[key], values[key], 'PX', (expiry - expiry % 1000) / 1000 + 1)
    else
      -- It has as many bytes as before, and keeps its expiry.
      call('SETRANGE', keys[key], '0', values[key])
    end
  end
  return pack('>I7', now_us) .. string.char(unpack(flags)) .. table.concat(views)
end
