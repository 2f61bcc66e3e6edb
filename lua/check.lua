-- Checks a server's Lua: how it packs numbers, and that it calculates with doubles. Returns bytes, which are the
-- same on every server where counts are right.

local function check(keys, args) -- luacheck: no unused args
  local packed = struct.pack('>BBI7I6I4', 3, 255, 2 ^ 52 - 1, 2 ^ 44 - 1, 2 ^ 32 - 1)
  local _, _, most, long, low, behind = struct.unpack('>BBI7I6I4', packed)
  return packed .. struct.pack(
    '>I7I6I7B', most - most % 1000003, (long - long % 7) / 7, '12' * 1000000 + low, behind)
end
