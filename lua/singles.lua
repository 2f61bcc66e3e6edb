-- Decides requests of one check each, over distinct keys, like batch.lua, in less time. Reply and arguments are in
-- wire.lua, except that the number of keys that a rule decides (1 byte) follows it, in the order of the keys.

local function singles(keys, args)
  bind()
  local time = args[1] == '' and call('TIME')
  local now_us = time and time[1] * 1000000 + time[2] or tonumber(args[1])
  local values, flags = call('MGET', unpack(keys)), {}
  local position, last = 2, 0
  for _ = 1, args[2]:byte() do
    local algorithm, kind, window, limit, capacity, cost, floor, behind =
      unpack_at(RULE, args[2], position)
    local decide, room, tick = ALGORITHMS[algorithm], ROOMS[algorithm], kind % 4 >= 2 and 1000 or 1
    local now, first, taken = (now_us - now_us % tick) / tick, last + 1, cost * window
    position, last = behind + 1, last + args[2]:byte(behind)
    room = room and time and cost > 0 and room(window, capacity, cost, floor)
    for i = first, last do
      local value = values[i]
      local level = room and value and usual_level(value, now, window, limit, room, taken)
      if level then
        -- The expiry behind them stays.
        call('SETRANGE', keys[i], '0', pack('>I7I7', now, level))
      else
        local fits, found, state, expiry, stands, digest = decide(
          value, now, window, limit, capacity, cost, floor)
        flags[i], values[i] = fits and 2 * found + 1 or 2 * found, found == KEPT and (digest or value) or ''
        if state and stands and time then
          call('SETRANGE', keys[i], '0', state)
        elseif state then
          call('SET', keys[i], state, 'PX', millis(expiry * tick))
        end
      end
    end
  end
  return reply(now_us, flags, values, #keys)
end
