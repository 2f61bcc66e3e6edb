//! Scripts of these tests' own: numbers, bytes, values and errors.

use super::pair::Pair;
use super::sources::hash;

/// Loads and calls a script on both.
#[track_caller]
fn run(pair: &mut Pair, source: &str, rest: &[&str]) -> Vec<u8> {
    pair.ask(["SCRIPT", "LOAD", source]);
    let hash = hash(source);
    let count = if rest.is_empty() { &["0"][..] } else { &[] };
    pair.ask(["EVALSHA", &hash].iter().chain(count).chain(rest))
}

const NUMBERS: &str = "local numbers = {0, 1, -1, 2, 127, 128, 255, 256, -128, -129, 65535, 65536, 2^31 - 1, 2^31, 2^32 - 1, 2^32, \
    2^44 - 1, 2^44, 2^48, 2^52 - 1, 2^52, 2^53 - 1, 2^53, 2^53 + 1, 2^56 - 1, 2^56, 2^63 - 1024, 2^63, 2^63 + 2048, 2^64 - 2048, \
    2^64, 2^65, 1e300, -2^31, -2^52, -2^53, -2^63, -2^63 - 2048, -2^64, -1e300, 0.5, 1.5, -0.5, -1.5, 1e-300, 0/0, -(0/0), 1/0, -1/0, \
    4503599627370495.5, '12', '0x10', ' 5 ', '1e3', -0} ";

const FORMATS: &str = "local formats = {'>B', '>b', '>H', '>h', '>I', '>i', '>I1', '>I3', '>I4', '>i4', '>I5', '>I6', '>i6', '>I7', '>i7', \
    '>I8', '>i8', '>I9', '>I16', '>I32', '>L', '>l', '>T', '<B', '<I4', '<i5', '<I7', '<I8', 'I6', '<I16', '>f', '>d', '<f', '<d'} ";

#[test]
fn numbers_are_packed_and_unpacked_alike() {
    let mut pair = Pair::start(&[]);
    let source = format!(
        "{NUMBERS}{FORMATS}local out = {{}}
         for _, format in ipairs(formats) do
           for i, number in ipairs(numbers) do
             local packed = struct.pack(format, number)
             local back, behind = struct.unpack(format, packed)
             out[#out + 1] = format .. i .. ':' .. packed .. '=' .. string.format('%.17g', back) .. '@' .. behind
           end
         end
         return out"
    );
    let answer = run(&mut pair, &source, &[]);
    assert!(answer.starts_with(b"*"), "{}", answer.escape_ascii());
}

#[test]
fn bytes_of_all_kinds_are_unpacked_alike() {
    let mut pair = Pair::start(&[]);
    let source = format!(
        "{FORMATS}local out, data = {{}}, ''
         for i = 0, 63 do data = data .. string.char((i * 89 + 200) % 256) end
         for _, format in ipairs(formats) do
           for place = 1, 33 do
             local back, behind = struct.unpack(format, data, place)
             out[#out + 1] = string.format('%.17g', back) .. '@' .. behind
           end
         end
         return out"
    );
    let answer = run(&mut pair, &source, &[]);
    assert!(answer.starts_with(b"*"), "{}", answer.escape_ascii());
}

/// What ends with a value.
const VALUES: &[&str] = &[
    "return {struct.unpack('>BBI7I6I4', struct.pack('>BBI7I6I4', 3, 255, 2^52 - 1, 2^44 - 1, 2^32 - 1))}",
    "return struct.pack('> I2 x < I2 !4 B I4 ! b d', 1, 2, 3, 4, 5, 6)",
    "return {struct.unpack('> I2 x < I2 !4 B I4', struct.pack('> I2 x < I2 !4 B I4', 1, 2, 3, 4))}",
    "return struct.pack('c3sc0', 'abcdef', 'text', 'rest')",
    "return {struct.unpack('c3sBc0', 'abctext\\0\\3xyz')}",
    "return {struct.unpack('>I2I2', 'abcdefgh', 3)}",
    "return {struct.unpack('', 'abc')}",
    "return struct.pack('')",
    "return struct.pack('>I0', 5)",
    "return {1, 2.9, -2.9, 'three', true, false, 4}",
    "return {1, 2, nil, 4}",
    "return 2^53 + 0.5",
    "return 1e300",
    "return -1e300",
    "return 0/0",
    "return 'text'",
    "return true",
    "return false",
    "return nil",
    "return {ok = 'OK'}",
    "return redis.status_reply('FINE')",
    "return redis.error_reply('oneword')",
    "return redis.error_reply('-MINE my own')",
    "return {{1, {2}}, {}}",
    "return redis.error_reply('MINE my own')",
    "return {err = 'MINE my own'}",
    "return KEYS",
    "return ARGV",
    "return redis.call('SET', 'k', 5)",
    "return redis.call('SET', 'k', 1.5) and redis.call('GET', 'k')",
    "return {redis.call('SET', 'k', 2^52 - 1), redis.call('GET', 'k'), redis.call('SET', 'k', 0.1), redis.call('GET', 'k')}",
    "return {redis.call('SET', 'k', 1e17), redis.call('GET', 'k'), redis.call('SET', 'k', 1e-7), redis.call('GET', 'k')}",
    "return redis.call('MGET', 'k', 'none', 'k')",
    "return tostring(redis.call('MGET', 'none')[1])",
    "return tostring(redis.call('GET', 'none'))",
    "return redis.call('SETRANGE', 'k', '0', 'abc')",
    "return redis.call('SET', 'k', 'v', 'PX', 5000).ok",
    "return redis.call('DEL', 'k', 'none')",
    "return #redis.call('TIME')",
    "return redis.pcall('GET')",
    "return type(redis.pcall('NOTHING'))",
    "return redis.pcall('SET', 'k', 'v', 'NOTHING').err",
    "local fits, why = pcall(redis.call, 'SET', 'k', 'v', 'NOTHING') return {tostring(fits), why}",
    "local fits, why = pcall(struct.pack, 'q') return {tostring(fits), type(why)}",
    "local fits, why = pcall(error, {err = 'MINE own'}) return {tostring(fits), why}",
    "local fits, why = pcall(error, {mine = 'own'}) return {tostring(fits), why.mine}",
    "local fits, why = pcall(error, 'mine') return {tostring(fits), why}",
    "return tostring(12345678901234567890) .. tostring(1/0) .. tostring(-1/0) .. tostring(2^53) .. tostring(0.1)",
    "return tostring(tonumber('1700000000000000')) .. tostring(tonumber('nothing')) .. tostring(tonumber(''))",
    "return string.format('%.17g', 5 % -3) .. string.format('%.17g', -5 % 3) .. string.format('%.17g', 5.5 % 2)",
    "return table.concat({[0] = 'a', 'b', 'c'}, '', 0, 2)",
    "return string.char(unpack({1, 2, 3}, 1, 3)) .. ('ab'):rep(3) .. ('abc'):sub(2, -1) .. ('a'):rep(0) .. ('a'):rep(-1)",
    "return redis.sha1hex('abc')",
    "return {type(dofile), type(loadfile)} ",
];

#[test]
fn scripts_return_the_same() {
    let mut pair = Pair::start(&[]);
    for source in VALUES {
        run(&mut pair, source, &[]);
        run(&mut pair, source, &["2", "a", "b", "c", "d", "e"]);
    }
}

/// What ends with an error.
const ERRORS: &[&str] = &[
    "return struct.pack('>I4')",
    "return struct.pack('>I4', 'x')",
    "return struct.pack('>I4', nil)",
    "return struct.pack('>I4', {})",
    "return struct.pack('>I4', true)",
    "return struct.pack()",
    "return struct.pack({})",
    "return struct.pack('q', 1)",
    "return struct.pack('=I4', 1)",
    "return struct.pack('>I33', 1)",
    "return struct.pack('>I99999999999', 1)",
    "return struct.pack('!3I4', 1)",
    "return struct.pack('c5', 'abc')",
    "return struct.unpack('>I4', 'abc')",
    "return struct.unpack('>I4', nil)",
    "return struct.unpack('>I4')",
    "return struct.unpack('>I4', 'abcdefg', 5)",
    "return struct.unpack('>I4', 'abcdefg', 0)",
    "return struct.unpack('>I4', 'abcdefg', -1)",
    "return struct.unpack('>I4', 'abcdefg', 'x')",
    "return struct.unpack('s', 'abc')",
    "return struct.unpack('c0', 'abc')",
    "local unpack_at = struct.unpack\n\nreturn unpack_at('>I4', 'abc')",
    "local mine = {unpack_at = struct.unpack}\n\nlocal a = mine.unpack_at('>I4', 'abc')\nreturn a",
    "local unpack_at = struct.unpack\nlocal function f()\n  local a = unpack_at('>I4', false)\n  return a\nend\nlocal b = f()\nreturn b",
    "\n\nlocal a = nil + 1",
    "local a = {}\nreturn a.b.c",
    "local a\na()",
    "return nothing",
    "nothing = 1",
    "local a = nothing_there.at_all",
    "error('mine')",
    "error({err = 'MINE own'})",
    "error()",
    "\nredis.call('NOTHING')",
    "redis.call('GET')",
    "redis.call()",
    "redis.call({})",
    "redis.call('GET', nil)",
    "redis.call('SET', 'k', 'v', 'PX', 0)",
    "local x = 1\nlocal function f()\n  redis.call('SET', 'k', 'v', 'PX', 'x')\nend\nf()",
    "return redis.call('SET', 'k', 'v', 'NOTHING')",
    "redis.call('SCRIPT', 'LOAD', 'x')",
    "redis.call('EVALSHA', 'x', 0)",
    "redis.call('AUTH', 'x')",
    "return ('a'):rep(5, {}, {}) .. nil",
    "return 1 < 'x'",
    "return math.max()",
    "return ('x'):byte({})",
    "local max = math.max return max('x', {})",
];

#[test]
fn scripts_end_with_the_same_errors() {
    let mut pair = Pair::start(&[]);
    for source in ERRORS {
        run(&mut pair, source, &[]);
    }
}

#[test]
fn a_script_that_is_none_is_refused() {
    let mut pair = Pair::start(&[]);
    for source in ["foo bar", "return", "", "return 1 +", "end", "\n\nreturn ("] {
        pair.ask(["SCRIPT", "LOAD", source]);
    }
    for source in [
        "return 1",
        "#!lua name=a\nfoo bar",
        "#!lua name=a\nlocal x = 1",
        "#!lua\nreturn 1",
        "#!py name=a\n1",
        "#!lua name=a-b\n1",
    ] {
        pair.ask(["FUNCTION", "LOAD", source]);
    }
}
