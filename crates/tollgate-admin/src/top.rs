use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use heavykeeper::TopK;
use serde::{Deserialize, Serialize};
use tollgate::{Decision, Key};

/// Keys that are kept of each policy.
const KEPT: usize = 20;
/// Size of a sketch: other keys share these cells.
const WIDTH: usize = 512;
const DEPTH: usize = 3;
/// How fast rare keys leave a cell.
const DECAY: f64 = 0.9;
/// Policies that are counted: names come from the application.
const MAX_POLICIES: usize = 64;
/// Counts are of this time, and of the one before.
const PERIOD: Duration = Duration::from_secs(300);

/// The keys that send most requests, and those that are denied most, of each policy, in bounded memory.
///
/// It counts requests of the last 5 to 10 minutes with the sketch `HeavyKeeper`: counts of frequent keys are close, and
/// rare keys are left out. It keeps about 150 kB for each of at most 64 policies. Each decision takes a lock, and about
/// 1,400 instructions for each policy that applies.
///
/// # Examples
///
/// ```
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
/// use tollgate_admin::{Admin, Top};
///
/// let top = Top::new();
/// let policy = Policy::new("api", Quota::per_minute(100));
/// let live = RateLimitLayer::new(MemoryStore::new(), policy).on_decision(top.observer()).live();
/// let admin = Admin::local().layer("api", live).top(top);
/// # let _ = admin;
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct Top(Arc<Mutex<Periods>>);

/// A key and its requests, from [`Top`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TopKey {
    /// Name of the policy.
    pub policy: String,
    /// The key, as in the store.
    pub key: String,
    /// Requests, allowed or denied. 0 if the key is not among those with most requests.
    pub requests: u64,
    /// Requests that the policy denied or, in shadow mode, would have denied. 0 if the key is not among those denied most.
    pub denied: u64,
}

#[derive(Default)]
struct Periods {
    began: Option<Instant>,
    now: Sketches,
    before: Sketches,
}

type Sketches = HashMap<String, Sketch>;

struct Sketch {
    requests: TopK<Key, RandomState>,
    denied: TopK<Key, RandomState>,
}

impl Sketch {
    fn new() -> Self {
        let sketch = || TopK::with_hasher(KEPT, WIDTH, DEPTH, DECAY, RandomState::new());
        Self { requests: sketch(), denied: sketch() }
    }
}

impl Top {
    /// Creates counts that are empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the closure for [`on_decision`](tollgate::RateLimitLayer::on_decision), of one or several layers.
    pub fn observer(&self) -> impl Fn(&Decision) + Send + Sync + 'static {
        let top = self.clone();
        move |decision| top.observe(decision)
    }

    fn observe(&self, decision: &Decision) {
        let mut periods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        periods.turn(Instant::now());
        for outcome in decision.outcomes() {
            let sketches = &mut periods.now;
            if !sketches.contains_key(outcome.policy()) {
                if sketches.len() >= MAX_POLICIES {
                    continue;
                }
                sketches.insert(outcome.policy().to_owned(), Sketch::new());
            }
            let Some(sketch) = sketches.get_mut(outcome.policy()) else { continue };
            sketch.requests.add(outcome.key(), 1);
            if !outcome.is_allowed() {
                sketch.denied.add(outcome.key(), 1);
            }
        }
    }

    /// Returns the keys with most requests and with most denials, those denied most first.
    #[must_use]
    pub fn list(&self) -> Vec<TopKey> {
        let mut periods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        periods.turn(Instant::now());
        let all = [&periods.now, &periods.before].into_iter().flatten();
        merged(all.flat_map(|(policy, sketch)| {
            let key = |key: &Key, requests, denied| TopKey {
                policy: policy.clone(),
                key: key.as_str().to_owned(),
                requests,
                denied,
            };
            let requests: Vec<TopKey> = sketch.requests.list().iter().map(|one| key(&one.item, one.count, 0)).collect();
            let denied = sketch.denied.list().into_iter().map(move |one| key(&one.item, 0, one.count));
            requests.into_iter().chain(denied).collect::<Vec<_>>()
        }))
    }
}

impl Periods {
    fn turn(&mut self, now: Instant) {
        let age = now.saturating_duration_since(*self.began.get_or_insert(now));
        if age >= PERIOD {
            let last = std::mem::take(&mut self.now);
            self.before = if age >= 2 * PERIOD { Sketches::default() } else { last };
            self.began = Some(now);
        }
    }
}

/// Adds up counts of the same key, and orders keys by denials and requests.
pub(crate) fn merged(all: impl IntoIterator<Item = TopKey>) -> Vec<TopKey> {
    let mut sums: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for one in all {
        let sum = sums.entry((one.policy, one.key)).or_default();
        *sum = (sum.0.saturating_add(one.requests), sum.1.saturating_add(one.denied));
    }
    let key = |((policy, key), (requests, denied))| TopKey { policy, key, requests, denied };
    let mut all: Vec<TopKey> = sums.into_iter().map(key).collect();
    all.sort_by_key(|one| std::cmp::Reverse((one.denied, one.requests)));
    all
}

impl fmt::Debug for Top {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Top").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_keeps_about_150_kb_in_both_periods() {
        let sketch = Sketch::new();
        let size = 2 * [sketch.requests, sketch.denied].map(|one| one.mem_bytes(|_| 0)).iter().sum::<usize>();
        assert!((120_000..160_000).contains(&size), "{size}");
    }
}
