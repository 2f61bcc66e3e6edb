-- Decides requests, each all or nothing over its checks.
--
-- batch     the call as batch.lua reads it: rules and checks; the current values by key, and in expiries the
--           expiries to write: us from now, or false if the key keeps its expiry; states and ends are the same by
--           check, until its request is allowed; flags and views are for the reply, in the order of the checks.
--           If only usual checks have changed a key, levels has the new level and nows its tick, while its value
--           is still the one read: it is packed once, at the end; before has the level of the key by check, or nil
-- place     the position of a check: the indexes of its key and its rule; a request has first to last
-- rule      the algorithm and its arguments, `enforced`, and `tick` in us

-- Packs the state of a key into its value, and returns the value.
local function current(batch, key)
  local level = batch.levels[key]
  if level then
    local _, _, expiry = unpack_at(FALLING, batch.values[key])
    batch.values[key] = pack(FALLING, batch.nows[key], level, expiry)
    batch.levels[key], batch.expiries[key] = nil, batch.expiries[key] or false
  end
  return batch.values[key]
end

-- Decides the check at `place`, at a cost of `units`; returns true if it denies, its flags and its view. An OUTSIDE
-- check was not decided, so it denies in shadow mode, too.
local function decide_check(batch, place, rule, units)
  local key = batch.checks[place]
  local value = batch.levels[key] and current(batch, key) or batch.values[key]
  local fits, found, state, expiry, stands, digest = rule.decide(
    value, rule.now, rule.window, rule.limit, rule.capacity, units, rule.floor)
  if state then
    batch.states[place] = state
    batch.ends[place] = not (stands and batch.server_time) and expiry * rule.tick
  end
  local view = found == KEPT and (rule.whole and pack('>I4', #value) .. value or digest or value)
  return not fits and (rule.enforced or found == OUTSIDE), fits and 2 * found + 1 or 2 * found, view or ''
end

-- Like decide_check, if other checks have the same key: it is decided at the sum with the checks before it, and
-- written for all.
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

-- Takes back the units of a denied request's usual checks.
local function take_back(batch, first, last)
  for i = first, last, 2 do
    batch.levels[batch.checks[i]] = batch.before[i]
  end
end

-- Puts the new states of an allowed request's other checks into values.
local function commit(batch, first, last)
  local checks, states, expiries, ends = batch.checks, batch.states, batch.expiries, batch.ends
  for i = first, last, 2 do
    local key, state = checks[i], states[i]
    if state then
      batch.values[key], expiries[key] = state, ends[i] or expiries[key] or false
    end
  end
end

-- Decides the request whose number of checks is at `first`, and later ones up to `most` or a separate one; returns
-- the position after them.
--
-- A check is usual if it is of a bucket, by the server's time, and its state is known and not ahead of that time,
-- and its key keeps its expiry: then it takes its units immediately, in one step.
local function decide_requests(batch, first, most)
  local checks, rules, values, levels, views = batch.checks, batch.rules, batch.values, batch.levels, batch.views
  local replied, before, nows, place, rule, room, now, limit, taken = batch.replied, batch.before, batch.nows
  repeat
    local last, refused, others = first + 2 * checks[first] - 1, false, false
    for i = first + 1, last, 2 do
      local key = checks[i]
      if checks[i + 1] ~= place then
        place = checks[i + 1]
        rule = rules[place]
        room, now, limit, taken = rule.room, rule.now, rule.limit, rule.taken
      end
      local value, usual = values[key], false
      replied = replied + 1
      if room and value and #value == FALLING_SIZE then
        local time, found, expiry = unpack_at(FALLING, value)
        local known = levels[key]
        if known then
          time, found, value, before[i] = now, known, pack(FALLING, now, known, expiry), known
        else
          nows[key] = now
        end
        local level = found - (now - time) * limit
        level = level < 0 and taken or level + taken
        local reset, lasts = level / limit, expiry - now
        if level <= room and time <= now and reset <= lasts and lasts <= reset + rule.window then
          levels[key], views[replied], usual = level, value, true
        elseif level > room and time <= now and found < NEVER then
          batch.flags[replied], views[replied], usual, refused = 0, value, true, refused or rule.enforced
        end
      end
      if not usual then
        local decide = rule.repeats and decide_repeat or decide_check
        local refuses, flags, view = decide(batch, i, rule, rule.cost, first + 1)
        batch.flags[replied], views[replied] = flags, view
        refused, others = refused or refuses, true
      end
    end
    if refused then
      take_back(batch, first + 1, last)
    elseif others then
      commit(batch, first + 1, last)
    end
    batch.replied, first = replied, last + 2
  until first > most or rules[checks[first + 2]].apart
  return first
end
