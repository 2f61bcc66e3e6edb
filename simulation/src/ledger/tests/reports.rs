//! The script of ratios as it is, and with one thing changed.

use fastrand::Rng;

use crate::ledger::Reports;
use crate::server::{Call, Node, Reply, Session, Vm};

const SOURCE: &str = include_str!("../../../../crates/tollgate-ratio/lua/ratio.lua");

const TICK_US: u64 = 100_000;

/// A server with a script of ratios, and what it was reported.
struct History {
    node: Node,
    hash: String,
    reports: Reports,
    rng: Rng,
    now_us: u64,
}

impl History {
    fn new(vm: &Vm, source: &str, seed: u64) -> Self {
        let mut history = Self {
            node: Node::new(vm.clone()),
            hash: sha1_smol::Sha1::from(source).digest().to_string(),
            reports: Reports::default(),
            rng: Rng::with_seed(seed),
            now_us: 1_700_000_000_000_000,
        };
        assert!(!history.ask(&[b"SCRIPT", b"LOAD", source.as_bytes()]).is_error());
        history
    }

    fn ask(&mut self, words: &[&[u8]]) -> Reply {
        let mut session = Session::new(&self.node);
        self.node.execute(&mut session, words, self.now_us)
    }

    /// Makes a report; returns the call.
    fn report(&mut self) -> Call {
        let tick = self.now_us / TICK_US;
        let target = [0, tick, tick, tick - 1, tick - 2, tick + 1][self.rng.usize(..6)];
        let (live, mut packed) = (u8::from(self.rng.u8(..4) > 0), Vec::new());
        let head = [&TICK_US.to_be_bytes()[1..], &target.to_be_bytes()[1..], &[live]].concat();
        let first = self.rng.u8(..4);
        for counter in first..first + self.rng.u8(..4) {
            packed.extend([counter; 16]);
            let units = [self.rng.u64(..20), self.rng.u64(..2) * 7, 30];
            packed.extend(units.iter().flat_map(|units| units.to_be_bytes()[2..].to_vec()));
        }
        let keys = [0, 1, 2].map(|place| format!("t:{{ratio-{TICK_US}-1-0}}:{place}"));
        let hash = self.hash.clone();
        let [first, second, third] = keys.each_ref().map(String::as_bytes);
        self.ask(&[b"EVALSHA", hash.as_bytes(), b"3", first, second, third, &head, &packed]);
        self.node.take_calls().pop().expect("it ran")
    }

    /// Makes reports, in the middle of which servers and clocks may do what they do.
    fn run(&mut self, faults: bool) -> Result<(), String> {
        for _ in 0..60 {
            self.now_us += [0, 1_000, 20_000, 20_000, TICK_US, 3 * TICK_US][self.rng.usize(..6)];
            match self.rng.u8(..30) {
                0 if faults => {
                    self.reports.steps();
                    self.now_us = self.now_us + self.rng.u64(..4 * TICK_US) - 2 * TICK_US;
                }
                1 if faults => {
                    let key = self.node.keys().next().map(|(key, _)| key.to_vec()).unwrap_or_default();
                    self.node.forget(&key);
                    self.reports.forgot(&key);
                }
                _ => {}
            }
            let call = self.report();
            self.reports.ran(&call)?;
            if self.node.keys().any(|(_, until)| until.is_none()) {
                return Err("a hash never expires".to_owned());
            }
        }
        Ok(())
    }
}

/// The first seed of some whose history is found wrong, and why.
fn first_wrong(source: &str, faults: bool) -> Option<(u64, String)> {
    let vm = Vm::new();
    (0..200).find_map(|seed| History::new(&vm, source, seed).run(faults).err().map(|error| (seed, error)))
}

#[test]
fn the_script_of_ratios_adds_up_what_was_reported() {
    assert_eq!(first_wrong(SOURCE, false), None);
    assert_eq!(first_wrong(SOURCE, true), None);
}

/// What is changed, and what is wrong then.
const BROKEN: &[(&str, &str, &str)] = &[
    (
        "units count twice",
        "call('HINCRBY', bucket.key, name, ordinary)",
        "call('HINCRBY', bucket.key, name, 2 * ordinary)",
    ),
    ("those of a reserve are lost", "if critical > 0 then", "if critical > 1000 then"),
    (
        "units replace those of others",
        "call('HINCRBY', bucket.key, name, ordinary)",
        "call('HSET', bucket.key, name, ordinary)",
    ),
    ("reports that are late count", "target > 0 and target < tick - 1", "false"),
    ("reports of the last tick count in the current one", "target == tick - 1 and last or", "false and last or"),
    ("reports of the last tick are late", "target > 0 and target < tick - 1", "target > 0 and target < tick"),
    ("the current tick is told", "local last = read_bucket(keys, tick - 1)", "local last = read_bucket(keys, tick)"),
    ("an older tick goes on", "tonumber(found[1]) == number", "found[1] and true or false"),
    ("all processes are live", "counts > 0 then\n    into.live", "true then\n    into.live"),
    ("none is live", "live = is_there and tonumber(found[2]) or 0", "live = 0"),
    ("few are hot", ">= most", ">= 2 * most"),
    ("what was hot is forgotten", "add_hot(parts, last, hot .. last.hot)", "add_hot(parts, last, hot)"),
    ("what is hot is told twice", "if hot:find(name, 1, true) == position then", "if true then"),
    ("hashes stay", "call('PEXPIRE', bucket.key, math.ceil(tick_us / 250))", ""),
    ("hashes do not stay", "math.ceil(tick_us / 250)", "math.ceil(tick_us / 2000)"),
    ("what is left of an older tick counts", "call('PEXPIRE', bucket.key, 0)", ""),
    ("times are rounded", "local now_us = time[1] * 1000000 + time[2]", "local now_us = time[1] * 1000000"),
];

#[test]
fn every_broken_script_of_ratios_is_found() {
    for (what, right, wrong) in BROKEN {
        assert_eq!(SOURCE.matches(right).count(), 1, "{what}");
        let found = first_wrong(&SOURCE.replace(right, wrong), false);
        assert!(found.is_some(), "{what}");
    }
}
