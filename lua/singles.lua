-- Decides requests of one check each, over keys that are all different: what batch.lua does, in less
-- time. Answer and arguments are those of wire.lua, but that after each rule stands how many keys it
-- decides (1 byte), in their order.

local function singles(keys, args)
  bind()
  local time = args[1] == '' and call('TIME')
  local now_us = time and time[1] * 1000000 + time[2] or tonumber(args[1])
  local values, flags, views, known = call('MGET', unpack(keys)), {}, {}, 0
  local position, last = 2, 0
  for _ = 1, args[2]:byte() do
    local algorithm, kind, window, limit, capacity, cost, floor, behind =
      unpack_at(RULE, args[2], position)
    local decide, tick = ALGORITHMS[algorithm], kind % 4 >= 2 and 1000 or 1
    local now, first = (now_us - now_us % tick) / tick, last + 1
    position, last = behind + 1, last + args[2]:byte(behind)
    for i = first, last do
      local value = values[i]
      local fits, found, state, expiry, stands, digest = decide(
        value, now, window, limit, capacity, cost, floor)
      flags[i] = fits and 2 * found + 1 or 2 * found
      if found == KEPT then
        known = known + 1
        views[known] = digest or value
      end
      if state and stands and time then
        call('SETRANGE', keys[i], '0', state)
      elseif state then
        expiry = expiry * tick
        call('SET', keys[i], state, 'PX', (expiry - expiry % 1000) / 1000 + 1)
      end
    end
  end
  return pack('>I7', now_us) .. string.char(unpack(flags)) .. table.concat(views)
end
