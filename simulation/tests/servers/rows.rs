//! Commands.

use super::pair::Pair;

/// What both servers are asked, in order: a name, and commands, their words parted by spaces.
const ROWS: &[(&str, &[&str])] = &[
    (
        "a connection",
        &["PING", "PING hello", "ping a b", "ECHO x", "ECHO", "CLIENT GETNAME", "CLIENT SETNAME me", "CLIENT GETNAME"],
    ),
    (
        "what redis-rs sends first",
        &[
            "CLIENT SETINFO LIB-NAME redis-rs",
            "client setinfo LIB-VER 1.8.1",
            "SELECT 0",
            "SELECT 3",
            "SET k three",
            "SELECT 0",
            "GET k",
            "SELECT 16",
            "SELECT -1",
            "SELECT x",
        ],
    ),
    (
        "logging in without a password",
        &[
            "AUTH secret",
            "AUTH default secret",
            "AUTH other secret",
            "AUTH a b c",
            "AUTH",
            "HELLO x",
            "HELLO 5",
            "HELLO 2 NOTHING",
            "HELLO 2 AUTH a",
        ],
    ),
    (
        "unknown commands",
        &[
            "NOTHING",
            "nothing at all",
            "Sub-Thing 1 2 3",
            "CLIENT NOTHING",
            "CLIENT",
            "SCRIPT Nothing x",
            "SCRIPT",
            "FUNCTION nothing",
            "CLUSTER",
            "CLUSTER NOTHING",
        ],
    ),
    (
        "wrong arity",
        &[
            "GET",
            "GET a b",
            "SET a",
            "MGET",
            "DEL",
            "SETRANGE a 0",
            "EVALSHA x",
            "FCALL x",
            "SCRIPT LOAD",
            "SCRIPT LOAD a b",
            "FUNCTION LOAD",
            "TIME 1",
            "PTTL",
            "CLUSTER SLOTS x",
            "ROLE x",
            "ASKING x",
            "SELECT",
        ],
    ),
    ("no cluster", &["CLUSTER SLOTS", "ASKING"]),
    (
        "a value",
        &[
            "GET a",
            "SET a 1",
            "GET a",
            "PTTL a",
            "EXISTS a b a",
            "STRLEN a",
            "STRLEN b",
            "MGET a b a",
            "DEL a b",
            "DEL a",
            "GET a",
            "PTTL a",
            "DBSIZE",
            "FLUSHALL",
            "DBSIZE",
        ],
    ),
    (
        "options of SET",
        &[
            "SET a 1 PX 100000",
            "SET a 2 NX",
            "GET a",
            "SET a 3 XX EX 100",
            "SET b 3 XX",
            "SET a 1 PX",
            "SET a 1 PX 0",
            "SET a 1 PX -5",
            "SET a 1 PX x",
            "SET a 1 PX 9223372036854775807",
            "SET a 1 EX 9223372036854775807",
            "SET a 1 PX 1 EX 1",
            "SET a 1 NX XX",
            "SET a 1 NOTHING",
            "SET a 1 PX 01",
            "SET a 1 PX +1",
            "GET a",
            "SET a 9",
            "PTTL a",
        ],
    ),
    (
        "parts of values",
        &[
            "SETRANGE r 0 abc",
            "SETRANGE r 1 X",
            "GET r",
            "SETRANGE r 5 end",
            "GET r",
            "SETRANGE r -1 x",
            "SETRANGE r x x",
            "SETRANGE r 536870912 x",
            "SETRANGE r 99999999999 x",
            "DEL r",
            "PTTL r",
        ],
    ),
    (
        "hashes",
        &[
            "HSET h a 1 b two",
            "HSET h a 5 c",
            "HSET h a 5 c 6",
            "HSET h",
            "HGET h a",
            "HGET h none",
            "HGET none a",
            "HMGET h a none b",
            "HMGET none a b",
            "HMGET h",
            "HEXISTS h a",
            "HEXISTS h none",
            "HEXISTS none a",
            "HLEN h",
            "HLEN none",
            "HINCRBY h a 7",
            "HINCRBY h b 7",
            "HINCRBY h a x",
            "HINCRBY h new -3",
            "HINCRBY h a 9223372036854775807",
            "HINCRBY fresh a 1",
            "GET h",
            "MGET h fresh",
            "STRLEN h",
            "SETRANGE h 0 x",
            "SETRANGE h 0 x y",
            "SET s text",
            "HGET s a",
            "HMGET s a",
            "HSET s a 1",
            "HINCRBY s a 1",
            "HLEN s",
            "HEXISTS s a",
            "EXISTS h s",
            "SET h text",
            "GET h",
            "DEL h fresh",
            "HLEN fresh",
        ],
    ),
    (
        "how long a key is there",
        &[
            "PEXPIRE none 5",
            "PEXPIRE none x",
            "SET k v",
            "PEXPIRE k x",
            "PEXPIRE k",
            "PEXPIRE k 100000 NOTHING",
            "PEXPIRE k 9223372036854775807",
            "PEXPIRE k 100000",
            "EXISTS k",
            "PEXPIRE k 0",
            "EXISTS k",
            "HSET h a 1",
            "PEXPIRE h -5",
            "HLEN h",
        ],
    ),
    (
        "no such script",
        &[
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0",
            "EVALSHA short 0",
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff x",
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff 1",
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff -1",
            "SCRIPT EXISTS ffffffffffffffffffffffffffffffffffffffff a",
        ],
    ),
    ("no such function", &["FCALL none 0", "FCALL none x", "FCALL none 1"]),
    ("who it is", &["ROLE"]),
];

#[test]
fn commands_are_answered_as_by_a_real_server() {
    let mut pair = Pair::start(&[]);
    for (name, commands) in ROWS {
        println!("{name}");
        commands.iter().for_each(|command| drop(pair.line(command)));
        pair.line("SELECT 0");
        pair.line("FLUSHALL");
        pair.line("SCRIPT FLUSH");
    }
}

#[test]
fn a_value_of_odd_bytes_comes_back() {
    let mut pair = Pair::start(&[]);
    let all: Vec<u8> = (0..=255).collect();
    pair.ask([b"SET", &b"odd"[..], &all]);
    pair.ask(["GET", "odd"]);
    pair.ask([b"SETRANGE", &b"odd"[..], b"250", &all]);
    pair.ask(["MGET", "odd", "", "none"]);
    pair.ask(["SETRANGE", "odd", "0", ""]);
    pair.ask(["SETRANGE", "none", "0", ""]);
    pair.ask(["NOTHING", &"long".repeat(50), "and\r\nlines", &"x".repeat(300)]);
    pair.ask([&"longer".repeat(50)]);
}

#[test]
fn a_key_expires_at_the_same_millisecond() {
    let mut pair = Pair::start(&[]);
    pair.line("SET k v PX 40");
    pair.line("GET k");
    std::thread::sleep(std::time::Duration::from_millis(45));
    pair.line("GET k");
    pair.line("MGET k");
    pair.line("SETRANGE k 0 new");
    pair.line("PTTL k");
}
