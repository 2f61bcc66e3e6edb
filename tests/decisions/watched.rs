//! A store on Redis of which each decision is looked at in the server: looks write nothing and refusals nothing but
//! strikes, and what is written expires in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::store::{Answer, Check, Deadline, Decided, Store};
use tollgate::{Error, RedisStore};

use crate::support::doubles::passes_on;
use crate::support::server::RedisServer;

/// What a Redis key holds: its name, its value of whatever type, and when it expires in milliseconds.
type Kept = (String, Vec<u8>, i64);

/// What `PEXPIRETIME` answers where there is no key.
const GONE: i64 = -2;

/// With so many keys, decisions are not looked at.
const MANY: u64 = 8;

#[derive(Clone)]
pub(crate) struct Watched {
    store: RedisStore,
    server: Arc<RedisServer>,
    in_flight: Arc<AtomicUsize>,
    /// How many decisions were looked at.
    looked: Arc<AtomicUsize>,
}

impl Watched {
    pub(crate) fn new(store: RedisStore, server: &Arc<RedisServer>, looked: &Arc<AtomicUsize>) -> Self {
        Self { store, server: Arc::clone(server), in_flight: Arc::default(), looked: Arc::clone(looked) }
    }

    /// Every key there is. Windows of a few microseconds end in real time, also between two questions about one key.
    fn kept(&self) -> Vec<Kept> {
        let keys = self.server.keys().into_iter();
        let kept = keys.map(|key| {
            let value = self.server.ask(&["DUMP", &key]);
            let expires = self.server.ask(&["PEXPIRETIME", &key]);
            (key, value, expires)
        });
        kept.filter(|&(_, _, expires)| expires != GONE).collect()
    }

    async fn look(self, checks: Vec<Check>, deadline: Deadline) -> Result<Decided, Error> {
        let is_alone = self.in_flight.fetch_add(1, Ordering::SeqCst) == 0 && self.server.ask::<u64>(&["DBSIZE"]) < MANY;
        let before = if is_alone { self.kept() } else { Vec::new() };
        let decided = self.store.decide(&checks, deadline).wait().await;
        if self.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 && is_alone {
            self.looked.fetch_add(1, Ordering::SeqCst);
            let takes = |decided: &Decided| decided.receipt.taken().iter().any(|taken| taken.units > 0);
            match &decided {
                Ok(decided) if takes(decided) => self.assert_lives(decided),
                _ => assert_same(&before, &self.kept(), &checks),
            }
        }
        decided
    }

    /// Checks that the only key lives at least as long as its state matters, and at most a window longer. One that lives
    /// for less than a second may be gone already.
    fn assert_lives(&self, decided: &Decided) {
        let [outcome] = decided.decision.outcomes() else { return };
        let (reset, window) = (outcome.reset_after(), outcome.quota().window());
        let keys = self.server.keys();
        let [key] = &keys[..] else { return };
        if reset >= Duration::from_secs(1) {
            let ttl = Duration::from_millis(self.server.ask::<u64>(&["PTTL", key]));
            // Redis counts lives in whole milliseconds, from a whole one; the test's own time may have passed.
            let most = reset + window + Duration::from_millis(2);
            assert!(ttl + Duration::from_secs(5) > reset && ttl <= most, "{key}: {ttl:?} for {reset:?}");
        }
    }
}

/// Checks that nothing was written but strikes; what real time ended meanwhile is gone.
fn assert_same(before: &[Kept], after: &[Kept], checks: &[Check]) {
    let strikes = |kept: &Kept| kept.0.ends_with(":1b") && checks.iter().any(|check| check.ban.is_some());
    let changed: Vec<_> = after.iter().filter(|kept| !before.contains(kept) && !strikes(kept)).collect();
    assert!(changed.is_empty(), "{checks:?} wrote {changed:?}");
}

impl Store for Watched {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        Answer::pending(self.clone().look(checks.to_vec(), deadline))
    }

    fn supports(&self, requirements: &[tollgate::store::Requirement<'_>]) -> Result<(), Error> {
        self.store.supports(requirements)
    }

    passes_on!(store: settle, adjust, reset);
}
