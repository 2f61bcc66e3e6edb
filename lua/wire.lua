-- What is asked and answered.
--
-- keys      every key, once
-- args[1]   the time in us, or '' for the server's
-- args[2]   the number of rules (1 byte), each rule as algorithm (1), flags (1), window, limit,
--           capacity, cost, floor (7 each), then the requests: the number of checks (1), each check
--           as the places of its key and its rule, from 1 (1 each)
--           flags: 1 enforced; 2 the tick is 1 ms; 4 tell the whole state; no decision but 8 a refund
--           or 16 a charge of `cost` units, with a stamp in place of the floor, or 32 a reset
--
-- The answer is the time in us (7 bytes), for each check a byte of fits + 2 * found, then for each
-- check whose state was found that state; of a log the digest, or its size (4) and the whole. Of what
-- is no decision, fits says that it changed something.

local RULE = '>BBI7I7I7I7I7'

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
