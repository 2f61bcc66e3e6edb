-- Gives back or adds units after the fact.
--
-- keys[1]   the key
-- args[1]   the time in us, or '' for the server's
-- args[2]   algorithm (1 byte), flags (1), window, limit, capacity, refund, charge, stamp (7 each);
--           flags: 2 the tick is 1 ms; a stamp of 2^52 means the state as it stands
--
-- Returns 1 if something changed, else 0.

local ADJUSTMENTS = {
  fixed_window_adjust, token_bucket_adjust, sliding_window_adjust, sliding_log_adjust, leaky_bucket_adjust,
}

local function adjust(keys, args)
  local now_us = read_clock(args[1])
  local algorithm, flags, window, limit, capacity, refund, charge, stamp =
    unpack_at('>BBI7I7I7I7I7I7', args[2])
  local tick = flags >= 2 and 1000 or 1
  local now = floor_of(now_us / tick)
  local found = redis.call('MGET', keys[1])[1]
  local value, reset = ADJUSTMENTS[algorithm](found, now, window, limit, capacity, refund, charge, stamp)
  if not value then
    return 0
  end
  write(keys[1], value, reset * tick)
  return 1
end
