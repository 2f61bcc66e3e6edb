//! Clusters: which node does what, while slots move too.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tollgate_simulation::server::{Node, SLOTS, SlotTable, Vm, slot_of};

use super::pair::{Pair, now_us};
use super::real::{BUS, RealServer};
use super::sources::hash;

const HALF: u16 = SLOTS / 2;
const SCRIPT: &str = "return redis.call('MGET', unpack(KEYS))";

/// Two primaries, each real and simulated.
struct Cluster {
    pairs: [Pair; 2],
    slots: Arc<Mutex<SlotTable>>,
    /// Of the real ones.
    ids: [String; 2],
}

impl Cluster {
    /// Nodes that have no slots.
    fn start() -> Self {
        let (vm, slots) = (Vm::new(), Arc::new(Mutex::new(SlotTable::new())));
        let mut pairs = [(), ()].map(|()| {
            let server = RealServer::start(&["--cluster-enabled", "yes"]);
            let address = format!("127.0.0.1:{}", server.port);
            Pair::of(server, Node::in_cluster(vm.clone(), address, Arc::clone(&slots)))
        });
        let ids = pairs.each_mut().map(|pair| pair.text("CLUSTER MYID").lines().nth(1).unwrap().to_owned());
        Self { pairs, slots, ids }
    }

    fn ask_both(&mut self, line: &str) {
        self.pairs.iter_mut().for_each(|pair| drop(pair.line(line)));
    }

    /// Gives each node a half of the slots.
    fn share_slots(&mut self) {
        let port = self.pairs[1].server.port;
        self.pairs[0].tell_real(&format!("CLUSTER MEET 127.0.0.1 {port} {}", port + BUS));
        self.pairs[0].tell_real(&format!("CLUSTER ADDSLOTSRANGE 0 {}", HALF - 1));
        self.pairs[1].tell_real(&format!("CLUSTER ADDSLOTSRANGE {HALF} {}", SLOTS - 1));
        let mut slots = self.slots.lock().unwrap();
        slots.assign_all(0..HALF, 0);
        slots.assign_all(HALF..SLOTS, 1);
        drop(slots);
        self.settle();
    }

    /// Waits until the real ones know what the simulated ones know.
    fn settle(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        for pair in &mut self.pairs {
            while !pair.text("CLUSTER INFO").contains("cluster_state:ok") {
                assert!(Instant::now() < deadline, "the Cluster does not come about");
                thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// The answers to `CLUSTER SLOTS`, but for the IDs of nodes.
    fn compare_slots(&mut self) {
        let words = ["CLUSTER", "SLOTS"].map(|word| word.as_bytes().to_vec());
        for pair in &mut self.pairs {
            let (real, simulated) = pair.answers(&words);
            let (mut real, mut simulated) = (String::from_utf8(real).unwrap(), String::from_utf8(simulated).unwrap());
            self.ids.iter().for_each(|id| real = real.replace(id, "id"));
            for line in simulated.clone().lines().filter(|line| line.len() == 40) {
                simulated = simulated.replace(line, "id");
            }
            assert_eq!(real, simulated);
        }
    }

    /// Sends a slot of the first node on its way to the other.
    fn begin_move(&mut self, slot: u16) {
        let [first, second] = &mut self.pairs;
        second.tell_real(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.ids[0]));
        first.tell_real(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.ids[1]));
        self.slots.lock().unwrap().begin_move(slot, 1);
    }

    fn move_key(&mut self, key: &str) {
        let [first, second] = &mut self.pairs;
        first.tell_real(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", second.server.port));
        assert!(first.node.move_key(&mut second.node, key.as_bytes(), now_us()));
    }
}

/// A tag whose keys the first node has.
fn tag() -> String {
    (0..SLOTS).map(|number| format!("{{t{number}}}")).find(|tag| slot_of(tag.as_bytes()) < HALF).unwrap()
}

/// All that may be asked about two keys.
fn ask_about(cluster: &mut Cluster, tag: &str) {
    let hash = hash(SCRIPT);
    let lines = [
        format!("GET {tag}a"),
        format!("GET {tag}b"),
        format!("PTTL {tag}a"),
        format!("MGET {tag}a {tag}b"),
        format!("MGET {tag}a {tag}a"),
        format!("MGET {tag}c {tag}d"),
        format!("MGET {tag}c {tag}c"),
        format!("MGET {tag}b {tag}c"),
        format!("EVALSHA {hash} 2 {tag}a {tag}b"),
        format!("EVALSHA {hash} 1 {tag}a"),
        format!("EVALSHA {hash} 1 {tag}c"),
        format!("EVALSHA {hash} 0"),
        format!("EVALSHA {} 1 {tag}a", "f".repeat(40)),
        format!("EVALSHA {} 2 {tag}c {tag}d", "f".repeat(40)),
    ];
    for line in lines {
        cluster.ask_both(&line);
        cluster.ask_both("ASKING");
        cluster.ask_both(&line);
        cluster.ask_both("ASKING");
        cluster.ask_both("PING");
        cluster.ask_both(&line);
    }
}

#[test]
fn nodes_send_clients_where_their_keys_are() {
    let mut cluster = Cluster::start();
    let tag = tag();
    cluster.ask_both("GET a");
    cluster.ask_both("MGET a b");
    cluster.compare_slots();
    cluster.share_slots();
    cluster.compare_slots();
    for line in [
        "SELECT 1",
        "SELECT 0",
        "MGET a b",
        "DEL a b c",
        "GET {a}1",
        "MGET {a}1 {a}2",
        "CLUSTER NOTHING",
        "EVALSHA x 2 a b",
        "EVALSHA x 1",
        "GET",
    ] {
        cluster.ask_both(line);
    }
    for pair in &mut cluster.pairs {
        pair.ask(["SCRIPT", "LOAD", SCRIPT]);
    }
    cluster.pairs[0].line(&format!("SET {tag}a 1"));
    cluster.pairs[0].line(&format!("SET {tag}b 2"));
    ask_about(&mut cluster, &tag);

    let slot = slot_of(tag.as_bytes());
    cluster.begin_move(slot);
    ask_about(&mut cluster, &tag);
    cluster.move_key(&format!("{tag}a"));
    ask_about(&mut cluster, &tag);
    cluster.move_key(&format!("{tag}b"));
    ask_about(&mut cluster, &tag);

    let id = cluster.ids[1].clone();
    cluster.pairs.iter_mut().rev().for_each(|pair| pair.tell_real(&format!("CLUSTER SETSLOT {slot} NODE {id}")));
    cluster.slots.lock().unwrap().assign(slot, 1);
    ask_about(&mut cluster, &tag);
    cluster.compare_slots();
}
