-- Adds what a process was offered in its last tick to the tick that it is for, and returns what all
-- processes were offered in the last complete one. The same as src/memory.rs.
--
-- keys      three hashes of one slot: those of the ticks that are 0, 1 and 2 modulo 3
-- args[1]   the tick (7 bytes, us, 10,000 to 60,000,000), the number of the tick that the report is for, or
--           0 (7), and 1 if the process is counted as live, else 0 (1). It counts in that tick if it is the
--           last one, nowhere if it is older, and else in the current one
-- args[2]   the counters of the report, at most 512, each as its name (16), the units offered that may not
--           use the reserve, and the others (6 each), and the limit of a tick (6), all at most 2^40
--
-- A hash has the number of its tick in "tick", processes in "live", the names of hot counters in "hot", and
-- units by the name of the counter, with a "c" behind it for those that may use the reserve.
--
-- The result is the time in us (7), the live processes of the last tick (4), for each counter of the report
-- and then for each hot one its units in the last tick (7 each, both kinds); before those of a hot one, its
-- name (16). Units of a counter that has no room are 2^52 for the first kind.

local MAX_COUNTERS, MAX_HOT, NAME, OFFERED_SIZE = 1024, 32, 16, 34
local NEVER = 2 ^ 52
local call, pack, unpack_at, min = redis.call, struct.pack, struct.unpack, math.min
local OFFERED = '>I6I6I6'

-- The hash of a tick. What is there of another tick does not count.
local function read_bucket(keys, number)
  local key = keys[number % 3 + 1]
  local found = call('HMGET', key, 'tick', 'live', 'hot')
  local is_there = tonumber(found[1]) == number
  return {
    key = key, number = number, is_there = is_there,
    live = is_there and tonumber(found[2]) or 0, hot = is_there and found[3] or '',
  }
end

-- Begins the hash of a tick, in place of an older one.
local function begin_bucket(bucket, tick_us)
  -- This deletes it: a user who may not set a life fails before there is a key without one.
  call('PEXPIRE', bucket.key, 0)
  -- The long value keeps Redis from storing the hash as a list, in which each name is searched for.
  call('HSET', bucket.key, 'tick', bucket.number, 'list', ('-'):rep(65))
  call('PEXPIRE', bucket.key, math.ceil(tick_us / 250))
  bucket.is_there = true
end

local function read_names(packed)
  local names = {}
  for position = 1, #packed, OFFERED_SIZE do
    names[#names + 1] = packed:sub(position, position + NAME - 1)
  end
  return names
end

local function read_offered(packed, i)
  return unpack_at(OFFERED, packed, (i - 1) * OFFERED_SIZE + NAME + 1)
end

-- Adds what was offered; returns which counters have no room, by their place.
local function add_offered(bucket, names, packed)
  local full = #names > 0 and call('HLEN', bucket.key) > 2 * MAX_COUNTERS
  local without_room = {}
  for i, name in ipairs(names) do
    local ordinary, critical = read_offered(packed, i)
    if full and not call('HMGET', bucket.key, name)[1] then
      without_room[i] = true
    elseif ordinary + critical > 0 then
      call('HINCRBY', bucket.key, name, ordinary)
      if critical > 0 then
        call('HINCRBY', bucket.key, name .. 'c', critical)
      end
    end
  end
  return without_room
end

-- The units of counters, both kinds of each.
local function read_units(bucket, names)
  local fields = {}
  for i, name in ipairs(names) do
    fields[2 * i - 1], fields[2 * i] = name, name .. 'c'
  end
  local units = bucket.is_there and #names > 0 and call('HMGET', bucket.key, unpack(fields)) or {}
  for i = 1, #fields do
    units[i] = min(tonumber(units[i]) or 0, NEVER - 1)
  end
  return units
end

-- Adds the totals of each hot counter of two ticks to the result, once.
local function add_hot(parts, last, hot)
  local names = {}
  for position = 1, #hot, NAME do
    local name = hot:sub(position, position + NAME - 1)
    if hot:find(name, 1, true) == position then
      names[#names + 1] = name
    end
  end
  local units = read_units(last, names)
  for i, name in ipairs(names) do
    parts[#parts + 1] = name .. pack('>I7I7', units[2 * i - 1], units[2 * i])
  end
end

local function ratio(keys, args)
  local tick_us, target, counts = unpack_at('>I7I7B', args[1])
  local time = call('TIME')
  local now_us = time[1] * 1000000 + time[2]
  local tick = (now_us - now_us % tick_us) / tick_us
  local last = read_bucket(keys, tick - 1)
  local into = target == tick - 1 and last or read_bucket(keys, tick)
  local names = read_names(args[2])
  -- Several that were held up would count as so many processes of one tick.
  local is_late = target > 0 and target < tick - 1
  if not is_late and not into.is_there and (counts > 0 or #names > 0) then
    begin_bucket(into, tick_us)
  end
  if not is_late and counts > 0 then
    into.live = call('HINCRBY', into.key, 'live', 1)
  end
  -- What was offered is written first, as a report may be for the tick that is read.
  local without_room = is_late and {} or add_offered(into, names, args[2])
  local units, hot, parts = read_units(last, names), into.hot, {}
  for i, name in ipairs(names) do
    local ordinary, critical = units[2 * i - 1], units[2 * i]
    local _, _, most = read_offered(args[2], i)
    parts[i] = pack('>I7I7', without_room[i] and NEVER or ordinary, critical)
    local is_hot = not is_late and 2 * (ordinary + critical) >= most
    if is_hot and #hot < MAX_HOT * NAME and not hot:find(name, 1, true) then
      hot = hot .. name
    end
  end
  if hot ~= into.hot then
    call('HSET', into.key, 'hot', hot)
  end
  add_hot(parts, last, hot .. last.hot)
  return pack('>I7I4', now_us, last.live) .. table.concat(parts)
end

return ratio(KEYS, ARGV)
