//! The simulated server and a real one: the same commands on both, answered with the same bytes. And seeds.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "servers/real.rs"]
mod real;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use real::{BUS, Connection, RealServer};
use tollgate_simulation::server::{Faults, Node, ReadOnly, SLOTS, Session, SlotTable, Vm, slot_of};
use tollgate_simulation::world::{Plan, run};

/// A connection to a real server and one to a simulated one.
struct Pair {
    server: RealServer,
    real: Connection,
    node: Node,
    session: Session,
}

impl Pair {
    fn start(settings: &[&str]) -> Self {
        Self::of(RealServer::start(settings), Node::new(Vm::new()))
    }

    fn of(server: RealServer, node: Node) -> Self {
        let (real, session) = (server.connect(), Session::new(&node));
        Self { server, real, node, session }
    }

    /// Asks both, at the time that the real one replies with, if it does; they must answer alike. Of errors
    /// that mean no more than that, and of those of scripts, only the code is compared.
    #[track_caller]
    fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Vec<u8> {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_ref().to_vec()).collect();
        let (real, mut simulated) = (self.real.ask(&words), Vec::new());
        let at_us = time_of(&real).filter(|at_us| at_us.abs_diff(now_us()) < 1_000_000).unwrap_or_else(now_us);
        self.node.execute(&mut self.session, &words, at_us).write(&mut simulated);
        let is_script = matches!(&words[0][..], b"EVAL" | b"EVALSHA");
        let compared = |answer: &[u8]| {
            let is_error = answer.starts_with(b"-ERR") || is_script && answer.starts_with(b"-");
            let end = answer.iter().position(|byte| is_error && *byte == b' ').unwrap_or(answer.len());
            answer[..end].escape_ascii().to_string()
        };
        let shown: Vec<String> =
            words.iter().map(|word| word[..word.len().min(99)].escape_ascii().to_string()).collect();
        assert_eq!(compared(&simulated), compared(&real), "{} (simulated, then real)", shown.join(" "));
        real
    }

    /// As [`ask`](Self::ask), of words in a line.
    #[track_caller]
    fn line(&mut self, line: &str) {
        self.ask(&line.split(' ').collect::<Vec<_>>());
    }

    /// What only the real server answers.
    fn tell_real(&mut self, line: &str) -> String {
        let words: Vec<Vec<u8>> = line.split(' ').map(Into::into).collect();
        String::from_utf8(self.real.ask(&words)).unwrap()
    }
}

/// The time in an answer of tollgate's scripts, which begins with it, in µs since the epoch.
fn time_of(answer: &[u8]) -> Option<u64> {
    let start = answer.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let time = answer.get(start..start + 7).filter(|_| answer.starts_with(b"$"))?;
    Some(time.iter().fold(0, |time, byte| time << 8 | u64::from(*byte)))
}

fn now_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

const WRITES: &str = "redis.call('GET',KEYS[1])return(redis.call('SET',KEYS[1],'x','PX',5000))";

/// What is wrong with both servers, what the real one is told for it and against it, and commands.
type Row = (fn(&mut Faults), [&'static str; 2], &'static [&'static str]);

/// Each row begins with two servers that are empty.
const ROWS: &[Row] = &[
    (
        |_| {},
        ["PING", "PING"],
        &[
            "PING; NOTHING; nothing at all; CLIENT NOTHING; GET; SET a; SETRANGE a 0; EVALSHA x; TIME 1; CLUSTER SLOTS",
            "ASKING; SELECT 3; SET k three; SELECT 0; GET k; SELECT 16; SELECT x; AUTH secret; AUTH other secret; AUTH a b c",
            "SET a 1; PTTL a; EXISTS a b a; MGET a b a; SET a 1 PX 0; SET a 1 PX x; SET a 1 PX 01; GET a; DEL a b; GET a",
            "SET a 1 PX 9223372036854775807; SETRANGE a 3 end; GET a; SETRANGE a -1 x; SETRANGE a 536870912 x",
            "PEXPIRE none 5; PEXPIRE a x; PEXPIRE a 100000; EXISTS a; PEXPIRE a 0; GET a",
            "HSET h a 1 b two; HSET h a 5 c; HMGET h a none b; HLEN h; HLEN none; HINCRBY h a 7; HINCRBY h b 7",
            "HINCRBY h new -3; GET h; MGET h; SETRANGE h 0 x; SET h text; HLEN h; HINCRBY h a 1; HMGET h a",
            "EVALSHA ffffffffffffffffffffffffffffffffffffffff 0; EVALSHA ffffffffffffffffffffffffffffffffffffffff 1",
            "EVAL return{1,2.9,-2.9,'three',true,false,4} 0; EVAL return{KEYS,ARGV} 1 a b c; EVAL return{ok='OK'} 0",
            "EVAL return{err='MINE_own'} 0; EVAL foo( 0; EVAL return(nil+1) 0",
            "EVAL return(redis.call('SET','k',2^52-1)) 0; GET k",
            "EVAL return(tostring(redis.call('GET','none'))) 0; EVAL return(redis.call('SET','k','v','PX','x')) 0",
            "EVAL return(redis.call('NOTHING')) 0; EVAL return(redis.call('AUTH','x')) 0",
            "EVAL return(struct.pack('>BI7I6I4',255,2^52-1,-1,2^32)) 0; EVAL return(struct.unpack('>I7','abc')) 0",
            "EVAL return{struct.unpack('>BI7I4','abcdefghijklmno',3)} 0",
        ],
    ),
    (
        |fault| fault.out_of_memory = true,
        ["CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"],
        &["SET a 1; SETRANGE a 0 x; GET a; DEL a; PING; EVAL return(1) 0"],
    ),
    (
        |fault| fault.read_only = Some(ReadOnly::New),
        ["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"],
        &["SET a 1; GET a; DEL a; PING; FLUSHALL; EVAL return(1) 0"],
    ),
    (
        |fault| fault.password = Some("secret".to_owned()),
        ["CONFIG SET requirepass secret", "CONFIG SET requirepass "],
        &["GET a; NOTHING; AUTH wrong; AUTH other secret; GET a; AUTH secret; GET a; AUTH wrong; GET a"],
    ),
];

#[test]
fn commands_are_answered_as_by_a_real_server() {
    let mut pair = Pair::start(&[]);
    for (wrong, [begin, end], commands) in ROWS {
        for line in ["SELECT 0", "FLUSHALL", "SCRIPT FLUSH"] {
            pair.line(line);
        }
        assert!(pair.tell_real(begin).starts_with('+'), "{begin}");
        wrong(&mut pair.node.fault);
        (pair.real, pair.session) = (pair.server.connect(), Session::new(&pair.node));
        commands.iter().flat_map(|commands| commands.split("; ")).for_each(|command| pair.line(command));
        pair.ask(&["EVAL", WRITES, "1", "key"]);
        assert!(pair.tell_real(end).starts_with('+'), "{end}");
        pair.node.fault = Faults::default();
    }
}

/// What the client sends in runs of seeds is sent to both servers.
#[test]
fn what_the_client_sends_is_answered_as_by_a_real_server() {
    let (mut pair, vm) = (Pair::start(&[]), Vm::new());
    let (mut asked, mut decided) = (0, 0);
    for plan in (0..64).map(Plan::of).filter(|plan| plan.setting.nodes == 1) {
        println!("seed {}", plan.seed);
        for line in ["FLUSHALL", "SCRIPT FLUSH"] {
            pair.line(line);
        }
        for command in run(&plan, &vm, true).trace.commands().iter().filter(|command| &command[0][..] != b"AUTH") {
            asked += 1;
            decided += usize::from(time_of(&pair.ask(command)).is_some());
        }
    }
    assert!(asked > 1_000 && decided > 800, "{asked} commands, {decided} with a decision");
}

/// Two primaries, each real and simulated, that share the slots of a Cluster.
struct Cluster {
    pairs: [Pair; 2],
    slots: Arc<Mutex<SlotTable>>,
    /// Of the real ones.
    ids: [String; 2],
}

impl Cluster {
    fn start() -> Self {
        let (vm, slots) = (Vm::new(), Arc::new(Mutex::new(SlotTable::default())));
        let mut pairs = [(), ()].map(|()| {
            let server = RealServer::start(&["--cluster-enabled", "yes"]);
            let address = format!("127.0.0.1:{}", server.port);
            Pair::of(server, Node::in_cluster(vm.clone(), &address, Arc::clone(&slots)))
        });
        let ids = pairs.each_mut().map(|pair| pair.tell_real("CLUSTER MYID").lines().nth(1).unwrap().to_owned());
        let (port, half) = (pairs[1].server.port, SLOTS / 2);
        pairs[0].tell_real(&format!("CLUSTER MEET 127.0.0.1 {port} {}", port + BUS));
        for (place, range) in [0..half, half..SLOTS].into_iter().enumerate() {
            pairs[place].tell_real(&format!("CLUSTER ADDSLOTSRANGE {} {}", range.start, range.end - 1));
            slots.lock().unwrap().assign_all(range, u16::try_from(place).unwrap());
        }
        let deadline = Instant::now() + Duration::from_secs(30);
        for pair in &mut pairs {
            while !pair.tell_real("CLUSTER INFO").contains("cluster_state:ok") {
                assert!(Instant::now() < deadline, "the Cluster does not come about");
                thread::sleep(Duration::from_millis(20));
            }
        }
        Self { pairs, slots, ids }
    }

    fn ask_both(&mut self, line: &str) {
        self.pairs.iter_mut().for_each(|pair| pair.line(line));
    }

    /// All that may be asked about keys of a slot, of which the first two may be there.
    fn ask_about(&mut self, tag: &str) {
        let script = "return(redis.call('MGET',unpack(KEYS)))";
        for keys in ["a", "b", "a b", "a a", "c d", "b c", "c"] {
            let keys: Vec<String> = keys.split(' ').map(|key| format!("{tag}{key}")).collect();
            let (count, keys) = (keys.len(), keys.join(" "));
            for line in [format!("MGET {keys}"), format!("EVAL {script} {count} {keys}")] {
                for asked in [&*line, "ASKING", &line, "ASKING", "PING", &line] {
                    self.ask_both(asked);
                }
            }
        }
    }

    fn move_key(&mut self, key: &str) {
        let [first, second] = &mut self.pairs;
        first.tell_real(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", second.server.port));
        assert!(first.node.move_key(&mut second.node, key.as_bytes(), now_us()));
    }
}

#[test]
fn nodes_send_clients_where_their_keys_are() {
    let mut cluster = Cluster::start();
    let tag =
        (0..SLOTS).map(|number| format!("{{t{number}}}")).find(|tag| slot_of(tag.as_bytes()) < SLOTS / 2).unwrap();
    let slot = slot_of(tag.as_bytes());
    for line in ["SELECT 1", "MGET a b", "GET {a}1", "MGET {a}1 {a}2", "GET"] {
        cluster.ask_both(line);
    }
    cluster.pairs[0].line(&format!("SET {tag}a 1"));
    cluster.pairs[0].line(&format!("SET {tag}b 2"));
    cluster.ask_about(&tag);
    let [from, to] = cluster.ids.clone();
    cluster.pairs[1].tell_real(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}"));
    cluster.pairs[0].tell_real(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}"));
    cluster.slots.lock().unwrap().begin_move(slot, 1);
    cluster.ask_about(&tag);
    for key in ["a", "b"] {
        cluster.move_key(&format!("{tag}{key}"));
        cluster.ask_about(&tag);
    }
    cluster.pairs.iter_mut().rev().for_each(|pair| drop(pair.tell_real(&format!("CLUSTER SETSLOT {slot} NODE {to}"))));
    cluster.slots.lock().unwrap().assign(slot, 1);
    cluster.ask_about(&tag);
}
