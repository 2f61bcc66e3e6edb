//! What each kind of quota, and a ban, costs a request, beside a token bucket: nanoseconds in memory, calls and time on Redis, and
//! bytes of a key there. A request is what [`Limiter::acquire`] begins; it ends at once, so slots are released as well.

mod memory;
mod redis;
mod size;

use std::sync::Arc;
use std::time::Duration;

use tollgate::policy::Calendar;
use tollgate::store::Store;
use tollgate::{Ban, Key, Limiter, Quota, Rule};

use crate::plain::keys;

const DAY: Duration = Duration::from_secs(86_400);

/// So many units that no key runs out of them.
const LIMIT: u64 = 100_000;

pub(crate) async fn run(flags: &[String]) {
    if let ["size", kind] = flags.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        return size::print_of(kind).await;
    }
    let effort = crate::effort(flags);
    memory::run(effort).await;
    size::run();
    redis::run(effort).await;
}

/// The kinds, first the one that the others are compared with.
fn kinds() -> Vec<(&'static str, Rule)> {
    let rule = |quota| Rule::new("bench", quota);
    let bucket = || rule(Quota::token_bucket(LIMIT, DAY));
    let month = Calendar::monthly("UTC").expect("there is always UTC");
    vec![
        ("token bucket", bucket()),
        ("token bucket of 10^9 units", rule(Quota::token_bucket(1_000_000_000, DAY))),
        ("token bucket with a ban", bucket().ban(Ban::new(3, DAY, DAY))),
        ("fixed window", rule(Quota::fixed_window(LIMIT, DAY))),
        ("calendar window", rule(Quota::calendar_window(LIMIT, month))),
        ("concurrency", rule(Quota::concurrency(LIMIT))),
    ]
}

/// Requests of many clients under one rule.
#[derive(Clone)]
struct Requests {
    limiter: Arc<Limiter>,
    keys: Arc<[Key]>,
}

impl Requests {
    fn new(store: impl Store, rule: Rule, clients: usize) -> Self {
        let limiter = Arc::new(Limiter::new(store, [rule]));
        Self { limiter, keys: keys("ip", clients).into() }
    }

    /// Begins a request and ends it.
    async fn one(&self, client: usize) {
        let (decision, slots) = self.limiter.acquire(&self.keys[client]).await.expect("the key is valid");
        assert!(decision.is_allowed() && decision.source() == tollgate::Source::Store, "{decision:?}");
        drop(slots);
    }
}
