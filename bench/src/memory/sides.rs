//! The two sides, asked alike.

use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Instant;

use futures::FutureExt;
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use tollgate::store::Store;
use tollgate::store::{
    Ask, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, Settlement, Settling, StoreDecision,
};
use tollgate::{Error, Key, Limiter, MemoryStore, Quota, Rule};

/// Units an hour: so few that a key that was used stays in use during a run.
const LIMIT: u32 = 1_000;

/// So many at once that no check of a run is refused.
const BURST: u32 = 30_000_000;

/// Keys that a store has room for, unless it is to hold more: the default.
const ROOM: usize = 1_000_000;

#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) keys: usize,
    pub(crate) threads: usize,
    /// For each thread.
    pub(crate) checks: usize,
}

/// A limiter and its keys.
pub(crate) trait Side: Sync {
    /// Makes the keys and checks each once.
    fn new(keys: usize) -> Self;

    /// Checks one key.
    fn check(&self, key: usize);

    /// Nanoseconds per check, as each thread sees them.
    fn nanos(&self, load: Load) -> f64 {
        let start = Barrier::new(load.threads);
        let of_thread = |thread: usize| {
            start.wait();
            let mut keys = Keys::new(thread);
            let begun = Instant::now();
            for _ in 0..load.checks {
                self.check(keys.next(load.keys));
            }
            begun.elapsed().as_nanos() as f64 / load.checks as f64
        };
        let total: f64 = thread::scope(|scope| {
            let threads: Vec<_> = (0..load.threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no check panics")).sum()
        });
        total / load.threads as f64
    }
}

/// A uniform draw of keys.
pub(crate) struct Keys {
    state: u64,
}

impl Keys {
    pub(crate) fn new(seed: usize) -> Self {
        Self { state: 0x9e37_79b9_7f4a_7c15 ^ (seed as u64 + 1) << 17 }
    }

    pub(crate) fn next(&mut self, keys: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 16).expect("48 bits") % keys
    }
}

pub(crate) fn address(key: usize) -> String {
    let byte = |shift: usize| key >> shift & 255;
    format!("{}.{}.{}.{}", 10 + byte(24), byte(16), byte(8), byte(0))
}

pub(crate) struct Governor {
    limiter: DefaultKeyedRateLimiter<String>,
    keys: Vec<String>,
}

impl Side for Governor {
    fn new(keys: usize) -> Self {
        let [limit, burst] = [LIMIT, BURST].map(|units| units.try_into().expect("not zero"));
        let limiter = RateLimiter::keyed(governor::Quota::per_hour(limit).allow_burst(burst));
        let side = Self { limiter, keys: (0..keys).map(|key| format!("ip:{}", address(key))).collect() };
        (0..keys).for_each(|key| side.check(key));
        side
    }

    fn check(&self, key: usize) {
        assert!(black_box(&self.limiter.check_key(&self.keys[key])).is_ok());
    }
}

pub(crate) struct Tollgate {
    store: MemoryStore,
    checks: Vec<Check>,
}

impl Side for Tollgate {
    fn new(keys: usize) -> Self {
        let quota = Quota::per_hour(LIMIT.into()).burst(BURST.into());
        // Each of the 64 shards has a 64th of the room, and chance gives some more keys than others.
        let store = MemoryStore::builder().capacity(ROOM.max(2 * keys)).build();
        let side = Self { store, checks: checks(Rule::new("bench", quota), keys) };
        (0..keys).for_each(|key| side.check(key));
        side
    }

    fn check(&self, key: usize) {
        assert!(allows(&self.store, &self.checks[key].clone()));
    }
}

/// Returns the checks of so many keys, as a limiter makes them.
fn checks(rule: Rule, keys: usize) -> Vec<Check> {
    let asked = Arc::default();
    let limiter = Limiter::new(Asking { store: MemoryStore::new(), asked: Arc::clone(&asked) }, [rule]);
    let check = |key| {
        let decided = limiter.check(&Key::new("ip", address(key))).now_or_never().expect("memory answers at once");
        assert!(decided.is_ok_and(|decision| decision.is_allowed()));
        asked.lock().expect("nothing panics").pop().expect("the limiter asked")
    };
    (0..keys).map(check).collect()
}

/// A store that keeps what it is asked. That of the feature for tests would slow the timers of all sides down.
struct Asking {
    store: MemoryStore,
    asked: Arc<Mutex<Vec<Check>>>,
}

impl Store for Asking {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        self.asked.lock().expect("nothing panics").extend_from_slice(checks);
        self.store.decide(checks, ask)
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.store.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        self.store.adjust(counter, change)
    }
}

pub(crate) fn allows(store: &MemoryStore, check: &Check) -> bool {
    // Seen where it is, as it would be by who asked: a copy of all of it would be part of the time.
    let answer = store.decide(std::slice::from_ref(check), Ask::default());
    let tollgate::store::MaybeFuture::Ready(Ok(decided)) = black_box(&answer) else {
        unreachable!("memory answers at once")
    };
    decided.decision.is_allowed()
}
