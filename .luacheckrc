-- What Redis gives to a script. The files in lua/ are joined before they are checked: see
-- scripts/check-lua.
std = "lua51"
read_globals = { "redis", "struct", "KEYS", "ARGV" }
max_line_length = 120
