-- Refunds, charges or renews units after the fact, or resets the counter.
--
-- batch, key, rule   like in decide.lua; the rule's `cost` is the units, and its `floor` the stamp of the units
--                    to refund, or NEVER for any

local function adjust_key(batch, key, rule)
  batch.replied = batch.replied + 1
  batch.views[batch.replied] = ''
  if rule.resets then
    batch.flags[batch.replied] = 2 * FRESH + (batch.values[key] and 1 or 0)
    batch.values[key], batch.expiries[key] = false, false
    return
  end
  local refund, charge = rule.refunds and rule.cost or 0, rule.charges and rule.cost or 0
  local units, state, expiry, stands = rule.adjust(
    batch.values[key], rule.now, rule.window, rule.limit, rule.capacity, refund, charge, rule.floor)
  if state then
    batch.values[key] = state
    batch.expiries[key] = not (stands and batch.server_time) and expiry * rule.tick
      or batch.expiries[key] or false
  end
  local _, found, _, _, _, digest = rule.decide(
    batch.values[key], rule.now, rule.window, rule.limit, rule.capacity, 0, 0)
  batch.flags[batch.replied] = 2 * found + (state and 1 or 0)
  if found == KEPT then
    local value = batch.values[key]
    local view = rule.whole and pack('>I4', #value) .. value or digest or value
    batch.views[batch.replied] = pack('>I7', units) .. view
  end
end
