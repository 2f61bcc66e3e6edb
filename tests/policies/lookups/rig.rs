//! A directory that counts what is looked up in it, and requests with a token to a layer that asks it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use tokio::time::sleep;
use tollgate::key::{self, Extracted, KeyExtractor, Lookup};
use tollgate::policy::TierLookup;
use tollgate::test_util::ManualClock;
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tower::ServiceExt;

use crate::rig::{Answer, HOUR, Text, and, from, hello};
use crate::support::soon::soon;
use crate::support::time;

pub(crate) const MANY: Quota = Quota::fixed_window(100_000, HOUR);
pub(crate) const PRO: Quota = Quota::fixed_window(200_000, HOUR);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How often something was looked up.
#[derive(Clone, Default)]
pub(crate) struct Directory(Arc<AtomicUsize>);

impl Directory {
    pub(crate) fn asked(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Finds a quota for everybody, so late.
    pub(crate) fn tiers(&self, after: Duration) -> TierLookup {
        self.tiers_by(move |_| async move {
            sleep(after).await;
            Ok(Some(PRO))
        })
    }

    pub(crate) fn tiers_by<F, T>(&self, find: F) -> TierLookup
    where
        F: Fn(Lookup) -> T + Send + Sync + 'static,
        T: Future<Output = Result<Option<Quota>, &'static str>> + Send + 'static,
    {
        let directory = self.clone();
        TierLookup::new(move |wanted| {
            directory.0.fetch_add(1, Ordering::SeqCst);
            find(wanted)
        })
    }

    /// Finds a quota at once the first time, and then what a test says, so late.
    pub(crate) fn then(&self, after: Duration, next: Result<Quota, &'static str>) -> TierLookup {
        let asked = self.clone();
        self.tiers_by(move |_| {
            let first = asked.asked() == 1;
            async move {
                if first {
                    return Ok(Some(PRO));
                }
                sleep(after).await;
                next.map(Some)
            }
        })
    }

    /// Finds an account for every token, so late.
    pub(crate) fn accounts(&self, after: Duration) -> key::KeyLookup {
        self.accounts_by(move |token| async move {
            sleep(after).await;
            Ok(Extracted::Key(Key::new("account", token.text().expect("a token"))))
        })
    }

    pub(crate) fn accounts_by<F, T>(&self, find: F) -> key::KeyLookup
    where
        F: Fn(Lookup) -> T + Send + Sync + 'static,
        T: Future<Output = Result<Extracted, &'static str>> + Send + 'static,
    {
        let directory = self.clone();
        key::lookup(key::header("x-token"), move |token| {
            directory.0.fetch_add(1, Ordering::SeqCst);
            find(token)
        })
    }
}

/// Counts by the token, with the quotas of a lookup.
pub(crate) fn tiered(lookup: TierLookup) -> Policy {
    Policy::new("token", MANY).key(key::header("x-token")).tier_lookup(lookup)
}

/// Counts by a key.
pub(crate) fn by(key: impl KeyExtractor) -> Policy {
    Policy::new("account", MANY).key(key)
}

pub(crate) fn memory() -> MemoryStore {
    time::memory(&ManualClock::new())
}

/// A layer of one policy over a store in memory.
pub(crate) fn layer(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(memory(), policy)
}

/// A request with a token, from one address.
pub(crate) fn with_token(token: &str) -> Request<Text> {
    and(from("192.0.2.7"), "x-token", token)
}

/// The response to a request, of a service that greets, and what is done in the background after it.
pub(crate) async fn send(layer: &RateLimitLayer, request: Request<Text>) -> Answer {
    let Ok(response) = soon(hello(&layer.clone().expose_decisions()).oneshot(request)).await;
    tokio::task::yield_now().await;
    response
}

pub(crate) async fn status(layer: &RateLimitLayer, token: &str) -> u16 {
    send(layer, with_token(token)).await.status().as_u16()
}

/// The statuses of requests with other tokens each.
pub(crate) async fn statuses<const N: usize>(layer: &RateLimitLayer) -> [u16; N] {
    let mut statuses = [0; N];
    for (token, answer) in statuses.iter_mut().enumerate() {
        *answer = status(layer, &format!("{token}")).await;
    }
    statuses
}

/// The limit that a token's request is told.
pub(crate) async fn limit(layer: &RateLimitLayer, token: &str) -> u64 {
    let response = send(layer, with_token(token)).await;
    let value = response.headers().get("x-ratelimit-limit").unwrap_or_else(|| panic!("{}", response.status()));
    value.to_str().expect("ASCII").parse().expect("a number")
}
