-- Arguments and reply of a call.
--
-- keys      every key, once
-- args[1]   the time in us, or '' for the server's
-- args[2]   the number of rules (1 byte), each rule as algorithm (1), flags (1), window, limit,
--           capacity, cost, floor (7 each), then the requests: the number of checks (1), each check
--           as the indexes of its key and its rule, from 1 (1 each)
--           algorithm: its number, and 16 more if the levels of a bucket may reach 2^52: wide.lua
--           flags: 1 enforced; 2 the tick is 1 ms; 4 return the whole state; no decision but 8 a refund,
--           16 a charge or both, a renewal, of `cost` units, with a stamp in place of the floor, or 32 a
--           reset; 64 another check of the request has the same key
--           an algorithm that counts in windows of a calendar has 32 added to its number, and in place of window
--           and capacity the windows that the process sends: see calendar_window.lua
--           the ban of a check, of algorithm 7, stands before it: see bans.lua
--
-- The reply is the time in us (7 bytes), for each check a byte of fits + 2 * found, then for each check whose state
-- was found the state; for a log the digest, or its size (4) and the whole log; for slots the number of cohorts (1)
-- and the state. For a change, fits is true if it changed anything, and the state after it follows the number of
-- units refunded or charged (7).

local RULE = '>BBI7I7I7I7I7'

local ALGORITHMS = {
  [1] = fixed_window,
  [2] = token_bucket,
  [3] = sliding_window,
  [4] = sliding_log,
  [5] = leaky_bucket,
  [6] = concurrency,
  [7] = ban,
  [18] = wide_token_bucket,
  [21] = wide_leaky_bucket,
  [33] = calendar_window,
}

local ADJUSTMENTS = {
  [1] = fixed_window_adjust,
  [2] = token_bucket_adjust,
  [3] = sliding_window_adjust,
  [4] = sliding_log_adjust,
  [5] = leaky_bucket_adjust,
  [6] = concurrency_adjust,
  [7] = ban_adjust,
  [18] = wide_token_bucket_adjust,
  [21] = wide_leaky_bucket_adjust,
  [33] = calendar_window_adjust,
}

-- Algorithms whose state is a falling level.
local ROOMS = {
  [2] = token_bucket_room,
  [5] = leaky_bucket_room,
}

-- The reply for a number of checks; flags: found and fits of the checks that are not usual; views: the states found.
local function reply(now_us, flags, views, checks)
  local all = ('\1'):rep(checks)
  if next(flags) then
    for i = 1, checks do
      flags[i] = flags[i] or 1
    end
    all = string.char(unpack(flags, 1, checks))
  end
  views[0] = pack('>I7', now_us) .. all
  return table.concat(views, '', 0, checks)
end
