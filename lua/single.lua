-- Decides one request of one check like batch.lua, in less time. Arguments and reply are in wire.lua.

local function single(keys, args)
  bind()
  local time = args[1] == '' and call('TIME')
  local now_us = time and time[1] * 1000000 + time[2] or tonumber(args[1])
  local algorithm, flags, window, limit, capacity, cost, floor = unpack_at(RULE, args[2], 2)
  local tick = flags % 4 >= 2 and 1000 or 1
  local value = call('MGET', keys[1])[1]
  local fits, found, state, expiry, stands, digest = ALGORITHMS[algorithm](
    value, (now_us - now_us % tick) / tick, window, limit, capacity, cost, floor)
  if state and stands and time then
    call('SETRANGE', keys[1], '0', state)
  elseif state then
    call('SET', keys[1], state, 'PX', millis(expiry * tick))
  end
  local head = pack('>I7B', now_us, fits and 2 * found + 1 or 2 * found)
  if found == KEPT then
    return head .. (digest or value)
  end
  return head
end
