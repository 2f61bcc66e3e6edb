-- Decides and adjusts like batch.lua, but also requests whose checks have a ban.
--
-- The ban of a check stands before it, and is decided like any check: it does not fit if the key is banned. In
-- shadow mode the check is then a peek, because it takes nothing. After the decision, strikes are written, whether
-- the request is allowed or denied, but none if a check is OUTSIDE, which is no decision. A ban of cost 1 is struck
-- if its check does not fit, or the key is banned by now. A check of cost 0 then stands for a check of one unit.

-- The check gets a copy of its rule, because other requests may have the rule at `place`.
local function look_only(all, place)
  local rules, rule = all.rules, {}
  for name, value in pairs(rules[all.checks[place]]) do
    rule[name] = value
  end
  rule.cost, rule.room = 0, false
  rules[#rules + 1] = rule
  all.checks[place] = #rules
end

local function is_banned(all, key, rule)
  return not ban(all.values[key], rule.now, rule.window, rule.limit, rule.capacity)
end

-- Returns true if the check at `place`, with this flag, fits.
local function fits_now(all, place, flag)
  local key, own = all.checks[place], all.rules[all.checks[place + 1]]
  if own.cost > 0 then
    return flag % 2 == 1
  end
  return (own.decide(current(all, key), own.now, own.window, own.limit, own.capacity, 1, own.floor))
end

-- Like decide_requests, for one request.
local function ban_requests(all, first)
  local checks, rules, values, flags = all.checks, all.rules, all.values, all.flags
  local last, before = first + 2 * checks[first] - 1, all.replied
  for i = first + 1, last, 2 do
    local rule = rules[checks[i + 1]]
    if rule.decide == ban and not rule.enforced and is_banned(all, checks[i], rule) then
      look_only(all, i + 3)
    end
  end
  decide_requests(all, first, last)
  for i = before + 1, all.replied do
    if (flags[i] or 1) >= 2 * OUTSIDE then
      return last + 2
    end
  end
  for i = first + 1, last, 2 do
    local key, rule, flag = checks[i], rules[checks[i + 1]], flags[before + (i - first + 3) / 2] or 1
    if rule.decide == ban and rule.cost > 0 and (not fits_now(all, i + 2, flag) or is_banned(all, key, rule)) then
      local _, state, expiry = ban_adjust(values[key], rule.now, rule.window, rule.limit, rule.capacity)
      if state then
        values[key], all.expiries[key] = state, expiry * rule.tick
      end
    end
  end
  return last + 2
end

local function bans(keys, args)
  return decide_all(keys, args, ban_requests)
end
