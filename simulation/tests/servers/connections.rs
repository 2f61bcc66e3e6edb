//! Passwords, and faults of a server as a whole.

use std::thread;
use std::time::Duration;

use tollgate_simulation::server::{ReadOnly, Reply};

use super::pair::Pair;
use super::sources::{hash, library};

const WRITES: &str = "redis.call('GET', KEYS[1])\nreturn redis.call('SET', KEYS[1], 'x', 'PX', 5000)";
const DELETES: &str = "redis.call('DEL', KEYS[1])\nredis.call('SET', KEYS[1], 'x')\nreturn 'wrote'";
const LOOKS: &str = "return redis.call('MGET', KEYS[1])";

/// Commands that a server in trouble may or may not do.
fn ask_all(pair: &mut Pair) {
    for source in [WRITES, DELETES, LOOKS] {
        pair.ask(["SCRIPT", "LOAD", source]);
        pair.ask(["EVALSHA", &hash(source), "1", "key"]);
    }
    for line in [
        "SET a 1",
        "SETRANGE a 0 x",
        "GET a",
        "DEL a",
        "PING",
        "FCALL tg_check 0",
        "FCALL tg_single 1 a x y",
        "FCALL no 0",
    ] {
        pair.line(line);
    }
    pair.ask(["FUNCTION", "LOAD", &library("other")]);
}

#[test]
fn a_server_without_memory_refuses_what_may_grow() {
    let mut pair = Pair::start(&[]);
    pair.ask(["FUNCTION", "LOAD", &library("tg")]);
    ask_all(&mut pair);
    pair.tell_real("CONFIG SET maxmemory 1");
    pair.node.fault.out_of_memory = true;
    ask_all(&mut pair);
    pair.tell_real("CONFIG SET maxmemory 0");
    pair.node.fault.out_of_memory = false;
    ask_all(&mut pair);
}

#[test]
fn a_replica_writes_nothing() {
    let mut pair = Pair::start(&[]);
    pair.ask(["FUNCTION", "LOAD", &library("tg")]);
    // Of nobody that answers.
    pair.tell_real("REPLICAOF 127.0.0.1 1");
    pair.node.fault.read_only = Some(ReadOnly::New);
    ask_all(&mut pair);
    pair.line("FLUSHALL");
    pair.tell_real("REPLICAOF NO ONE");
    pair.node.fault.read_only = None;
    ask_all(&mut pair);
}

#[test]
fn a_password_is_asked_for() {
    let mut pair = Pair::start(&["--requirepass", "secret"]);
    pair.node.fault.password = Some("secret".to_owned());
    pair.reconnect();
    for line in [
        "GET a",
        "NOTHING",
        "GET",
        "HELLO",
        "HELLO 2",
        "AUTH wrong",
        "AUTH default wrong",
        "AUTH other secret",
        "HELLO 2 AUTH default wrong",
        "GET a",
        "AUTH secret",
        "GET a",
        "AUTH wrong",
        "GET a",
    ] {
        pair.line(line);
    }
    pair.tell_real("CONFIG SET requirepass other");
    pair.node.fault.password = Some("other".to_owned());
    // Who is logged in stays so.
    pair.line("GET a");
    pair.reconnect();
    for line in ["GET a", "AUTH secret", "PING", "AUTH default other", "PING"] {
        pair.line(line);
    }
    pair.tell_real("CONFIG SET requirepass ");
    pair.node.fault.password = None;
    pair.reconnect();
    pair.line("PING");
}

#[test]
fn a_server_that_runs_a_script_for_too_long_does_nothing_else() {
    let mut pair = Pair::start(&["--busy-reply-threshold", "1"]);
    let mut other = pair.server.connect();
    pair.ask(["SCRIPT", "LOAD", LOOKS]);
    other.send(&[&["EVAL", "while true do end", "0"].map(|word| word.as_bytes().to_vec())]);
    thread::sleep(Duration::from_millis(100));
    pair.node.fault.busy = true;
    ask_all(&mut pair);
    for line in ["TIME", "INFO", "ROLE", "SELECT 0", "CLIENT GETNAME", "ASKING", "AUTH x", "NOTHING"] {
        pair.line(line);
    }
    pair.tell_real("SCRIPT KILL");
    pair.node.fault.busy = false;
    assert!(other.answer().starts_with(b"-"));
    ask_all(&mut pair);
}

#[test]
fn a_replica_of_an_old_version_tells_it_as_an_error_of_the_script() {
    let mut pair = Pair::start(&[]);
    pair.ask(["SCRIPT", "LOAD", WRITES]);
    pair.node.fault.read_only = Some(ReadOnly::Old);
    let words = ["EVALSHA", &hash(WRITES), "1", "key"].map(|word| word.as_bytes().to_vec());
    let answer = pair.node.execute(&mut pair.session, &words, 0);
    let text = format!(
        "ERR Error running script (call to f_{}): @user_script:2: @user_script: 2: -READONLY You can't write against a \
         read only replica.",
        hash(WRITES)
    );
    assert_eq!(answer, Reply::Error(text));
}

#[test]
fn a_server_that_reads_its_data_does_next_to_nothing_else() {
    let slowly = ["--loading-process-events-interval-bytes", "1024", "--key-load-delay", "2000"];
    let mut pair = Pair::start(&[&["--enable-debug-command", "yes"], &slowly[..]].concat());
    let mut other = pair.server.connect();
    pair.ask(["FUNCTION", "LOAD", &library("tg")]);
    pair.tell_real("DEBUG POPULATE 1000");
    other.send(&[&["DEBUG", "RELOAD"].map(|word| word.as_bytes().to_vec())]);
    thread::sleep(Duration::from_millis(200));
    pair.node.fault.loading = true;
    for line in [
        "PING",
        "GET a",
        "SET a 1",
        "EVALSHA x 0",
        "FCALL tg_check 0",
        "SCRIPT LOAD x",
        "ASKING",
        "CLUSTER SLOTS",
        "ROLE",
        "SELECT 0",
        "ECHO x",
        "AUTH x",
        "NOTHING",
    ] {
        pair.line(line);
    }
    assert_eq!(String::from_utf8_lossy(&other.answer()), "+OK\r\n");
    pair.node.fault.loading = false;
    pair.line("GET a");
}
