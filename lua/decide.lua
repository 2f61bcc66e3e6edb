-- Decides requests, each all or nothing over its checks.
--
-- batch     what batch.lua makes of a call: rules and checks; the values by key as they are by now, and
--           in expiries those to write: us from now, or false where the key's own expiry stands; flags
--           and views, to be answered
-- key       the place of a check's key
-- rule      the algorithm and its arguments, `enforced`, and `tick` in us
-- place     where a request's checks begin, each the places of its key and its rule
-- count     how many they are

-- Decides a request of one check.
local function decide_check(batch, key, rule)
  local values, expiries, flags, views = batch.values, batch.expiries, batch.flags, batch.views
  local value = values[key]
  local fits, found, state, expiry, stands, digest = rule.decide(
    value, rule.now, rule.window, rule.limit, rule.capacity, rule.cost, rule.floor)
  flags[#flags + 1] = fits and 2 * found + 1 or 2 * found
  if found == KEPT then
    views[#views + 1] = digest or value
  end
  if state then
    values[key] = state
    expiries[key] = not (stands and batch.server_time) and expiry * rule.tick or expiries[key] or false
  end
end

-- Decides a request of several checks. Those of one key ask for their sum.
local function decide_checks(batch, place, count)
  local values, expiries, flags, views = batch.values, batch.expiries, batch.flags, batch.views
  local units, states, ends, refused = {}, {}, {}, false
  for i = place, place + 2 * count - 2, 2 do
    local key, rule = batch.checks[i], batch.rules[batch.checks[i + 1]]
    local value, asked = values[key], rule.cost > 0 and rule.cost + (units[key] or 0) or 0
    local fits, found, state, expiry, stands, digest = rule.decide(
      value, rule.now, rule.window, rule.limit, rule.capacity, asked, rule.floor)
    flags[#flags + 1] = fits and 2 * found + 1 or 2 * found
    if found == KEPT then
      views[#views + 1] = rule.whole and pack('>I4', #value) .. value or digest or value
    end
    if asked > 0 and (fits or rule.enforced) then
      units[key] = asked
    end
    if state then
      states[key], ends[key] = state, not (stands and batch.server_time) and expiry * rule.tick
    end
    refused = refused or (rule.enforced and not fits)
  end
  for key, state in pairs(refused and {} or states) do
    values[key], expiries[key] = state, ends[key] or expiries[key] or false
  end
end
