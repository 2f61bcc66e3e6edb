-- Decides and adjusts like batch.lua, also requests whose checks have a ban.
--
-- The bans of a request stand before its checks. They are decided with them: a banned key refuses. Once
-- the request is decided, strikes are written, whether it is admitted or refused; none if a check is
-- OUTSIDE, which is no decision. In the limit of their rules, in multiples of PART: 2 the check is a look
-- that stands for a check of one unit, which it would not fit; 4 a check that does not fit is a strike;
-- from 8 on the check's place in the request.

local function read_place(rule)
  local code = (rule.limit - rule.limit % PART) / PART
  local low = code % 8
  return (code - low) / 8, low >= 4, low % 4 >= 2
end

-- In shadow mode a check whose key is banned takes nothing: it is decided as a look. Other requests may
-- have the same rule, so it gets one of its own.
local function look_only(all, place)
  local rules, rule = all.rules, {}
  for name, value in pairs(rules[all.checks[place]]) do
    rule[name] = value
  end
  rule.cost, rule.room = 0, false
  rules[#rules + 1] = rule
  all.checks[place] = #rules
end

-- Whether the check of a ban is a strike: it did not fit, or the key is banned by now.
local function is_strike(all, rule, key, first, before)
  local place, counts, tests = read_place(rule)
  if not counts then
    return false
  end
  local values, fits = all.values, (all.flags[before + place] or 1) % 2 == 1
  if tests then
    local at = first + 2 * place - 1
    local own = all.rules[all.checks[at + 1]]
    fits = own.decide(current(all, all.checks[at]), own.now, own.window, own.limit, own.capacity, 1, own.floor)
  end
  return not fits or not ban(values[key], rule.now, rule.window, 0, rule.capacity)
end

-- Whether a check of the request was not decided, since `before`: then the reply is no decision.
local function is_outside(all, before)
  for i = before + 1, all.replied do
    if (all.flags[i] or 1) >= 2 * OUTSIDE then
      return true
    end
  end
  return false
end

-- As decide_requests, but a request that has bans alone.
local function ban_requests(all, first, most)
  local checks, rules, values, before = all.checks, all.rules, all.values, all.replied
  local last = first + 2 * checks[first] - 1
  if rules[checks[first + 2]].decide ~= ban then
    return decide_requests(all, first, most)
  end
  for i = first + 1, last, 2 do
    local rule = rules[checks[i + 1]]
    if rule.decide ~= ban then
      break
    end
    if not rule.enforced and not ban(values[checks[i]], rule.now, rule.window, 0, rule.capacity) then
      look_only(all, first + 2 * read_place(rule))
    end
  end
  decide_requests(all, first, last)
  for i = first + 1, is_outside(all, before) and 0 or last, 2 do
    local rule, key = rules[checks[i + 1]], checks[i]
    if rule.decide ~= ban then
      break
    end
    if is_strike(all, rule, key, first, before) then
      local _, state, expiry = ban_adjust(
        values[key], rule.now, rule.window, rule.limit, rule.capacity, 0, rule.cost)
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
