//! A store on Redis of which each decision is looked at in the server: looks write nothing and refusals nothing but
//! strikes, and what is written expires in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::store::{Ask, Check, MaybeFuture, Store, StoreDecision};
use tollgate::{Error, RedisStore};

use crate::support::doubles::passes_on;
use crate::support::server::{RedisServer, Session};

/// What a Redis key holds: its name, its value of whatever type, and when it expires in milliseconds.
type Kept = (String, Vec<u8>, i64);

/// What `PEXPIRETIME` answers where there is no key.
const GONE: i64 = -2;

/// With more keys, decisions are not looked at.
const FEW: u64 = 7;

/// Every key there is at one time; nothing if there are more.
const KEPT: &str = "if redis.call('DBSIZE') > tonumber(ARGV[1]) then return false end
local kept = {}
for place, key in ipairs(redis.call('KEYS', '*')) do
  kept[place] = {key, redis.call('DUMP', key), redis.call('PEXPIRETIME', key)}
end
return kept";

#[derive(Clone)]
pub(crate) struct Watched {
    store: RedisStore,
    server: Arc<Session>,
    in_flight: Arc<AtomicUsize>,
    /// How many decisions were looked at.
    looked: Arc<AtomicUsize>,
}

impl Watched {
    pub(crate) fn new(store: RedisStore, server: &RedisServer, looked: &Arc<AtomicUsize>) -> Self {
        Self { store, server: Arc::new(server.session()), in_flight: Arc::default(), looked: Arc::clone(looked) }
    }

    /// Every key there is, unless there are more. Windows of a few microseconds end in real time.
    fn kept(&self, most: u64) -> Option<Vec<Kept>> {
        let kept: Option<Vec<Kept>> = self.server.ask(&["EVAL", KEPT, "0", &most.to_string()]);
        kept.map(|kept| kept.into_iter().filter(|&(_, _, expires)| expires != GONE).collect())
    }

    async fn look(self, checks: Vec<Check>, ask: Ask) -> Result<StoreDecision, Error> {
        let is_alone = self.in_flight.fetch_add(1, Ordering::SeqCst) == 0;
        let before = if is_alone { self.kept(FEW) } else { None };
        let decided = self.store.decide(&checks, ask).wait().await;
        if let (1, Some(before)) = (self.in_flight.fetch_sub(1, Ordering::SeqCst), before) {
            self.looked.fetch_add(1, Ordering::SeqCst);
            let takes = |decided: &StoreDecision| decided.receipt.items().iter().any(|taken| taken.units > 0);
            match &decided {
                Ok(decided) if takes(decided) => self.assert_lives(decided),
                _ => assert_same(&before, &self.kept(u64::MAX).expect("no more than that"), &checks),
            }
        }
        decided
    }

    /// Checks that the only key lives at least as long as its state matters, and at most a window longer. One that lives
    /// for less than a second may be gone already.
    fn assert_lives(&self, decided: &StoreDecision) {
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
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        MaybeFuture::pending(self.clone().look(checks.to_vec(), ask))
    }

    passes_on!(store: settle, adjust, capabilities);
}
