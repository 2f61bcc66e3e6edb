-- Decides requests, each all or nothing over its checks.
--
-- batch     the call as batch.lua reads it: rules and checks; the current values by key, and in expiries
--           those to write: us from now, or false if the key keeps its expiry; states and ends, the
--           same by check until its request is admitted; and for the reply, by the checks in their
--           order, flags and views
-- place     the position of a check: the places of its key and its rule; a request's are first to last
-- rule      the algorithm and its arguments, `enforced`, and `tick` in us

-- Decides the check at `place`, at a cost of `units`; returns whether it refuses, its flags and its view. One that is
-- OUTSIDE was not decided, so it refuses in shadow mode too.
local function decide_check(batch, place, rule, units)
  local value = batch.values[batch.checks[place]]
  local fits, found, state, expiry, stands, digest = rule.decide(
    value, rule.now, rule.window, rule.limit, rule.capacity, units, rule.floor)
  if state then
    batch.states[place] = state
    batch.ends[place] = not (stands and batch.server_time) and expiry * rule.tick
  end
  local view = found == KEPT and (rule.whole and pack('>I4', #value) .. value or digest or value)
  return not fits and (rule.enforced or found == OUTSIDE), fits and 2 * found + 1 or 2 * found, view or ''
end

-- As decide_check, if earlier checks have the same key: it is decided at the sum, and written for all.
local function decide_repeat(batch, place, rule, cost, first)
  local checks, states, sum = batch.checks, batch.states, cost
  for i = first, place - 2, 2 do
    local earlier = batch.rules[checks[i + 1]]
    if checks[i] == checks[place] and (states[i] ~= nil or earlier.enforced) then
      sum = sum + earlier.cost
    end
  end
  local refuses, flags, view = decide_check(batch, place, rule, cost > 0 and sum or 0)
  for i = first, states[place] and place - 2 or 0, 2 do
    if checks[i] == checks[place] and states[i] then
      states[i] = false
    end
  end
  return refuses, flags, view
end

local function decide_request(batch, first, last)
  local checks, rules, values, states = batch.checks, batch.rules, batch.values, batch.states
  local views, replied, refused = batch.views, batch.replied, false
  for i = first, last, 2 do
    local rule, value = rules[checks[i + 1]], values[checks[i]]
    local room, now, level, expiry = rule.room, rule.now, nil, nil
    replied = replied + 1
    if room and value then
      level, expiry = usual_level(value, now, rule.window, rule.limit, room, rule.taken)
    end
    if level then
      views[replied], states[i] = value, pack(FALLING, now, level, expiry)
    else
      local decide = rule.repeats and decide_repeat or decide_check
      local refuses, flags, view = decide(batch, i, rule, rule.cost, first)
      batch.flags[replied], views[replied] = flags, view
      refused = refused or refuses
    end
  end
  batch.replied = replied
  local expiries, ends = batch.expiries, batch.ends
  for i = first, refused and 0 or last, 2 do
    local key, state = checks[i], states[i]
    if state then
      values[key], expiries[key] = state, ends[i] or expiries[key] or false
    end
  end
end
