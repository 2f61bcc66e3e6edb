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
    local at = first + 2 * place - 2
    local own = all.rules[all.checks[at + 1]]
    fits = own.decide(values[all.checks[at]], own.now, own.window, own.limit, own.capacity, 1, own.floor)
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

local function ban_request(all, first, last)
  local checks, rules, values, before = all.checks, all.rules, all.values, all.replied
  for i = first, last, 2 do
    local rule = rules[checks[i + 1]]
    if rule.decide ~= ban then
      break
    end
    if not rule.enforced and not ban(values[checks[i]], rule.now, rule.window, 0, rule.capacity) then
      look_only(all, first + 2 * read_place(rule) - 1)
    end
  end
  decide_request(all, first, last)
  for i = first, is_outside(all, before) and 0 or last, 2 do
    local rule, key = rules[checks[i + 1]], checks[i]
    if rule.decide ~= ban then
      break
    end
    local brought = rule.floor + (is_strike(all, rule, key, first, before) and SHARE or 0)
    if brought >= SHARE then
      local _, state, expiry = ban_adjust(
        values[key], rule.now, rule.window, rule.limit, rule.capacity, 0, rule.cost, brought)
      if state then
        values[key], all.expiries[key] = state, expiry * rule.tick
      end
    end
  end
end

local function bans(keys, args)
  bind()
  local time = args[1] == '' and call('TIME')
  local now_us = time and time[1] * 1000000 + time[2] or tonumber(args[1])
  local rules, position = read_rules(args[2], now_us, time)
  local checks, flags, views, expiries = { args[2]:byte(position, -1) }, {}, {}, {}
  local values = call('MGET', unpack(keys))
  local all = {
    server_time = time, rules = rules, checks = checks, values = values, expiries = expiries,
    states = {}, ends = {}, flags = flags, views = views, replied = 0,
  }
  local first = 2
  while first <= #checks do
    local last, rule = first + 2 * checks[first - 1] - 2, rules[checks[first + 1]]
    if rule.adjust then
      adjust_key(all, checks[first], rule)
    elseif rule.decide == ban then
      ban_request(all, first, last)
    else
      decide_request(all, first, last)
    end
    first = last + 3
  end
  for i = 1, #keys do
    if expiries[i] ~= nil then
      write(keys[i], values[i], expiries[i])
    end
  end
  return reply(now_us, flags, views, all.replied)
end
