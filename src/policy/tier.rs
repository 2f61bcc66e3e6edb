//! Quotas that differ from client to client.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use moka::sync::Cache;
use tokio::time::Instant;

use crate::store::Answer;
use crate::{Key, Quota};

/// How long a failed lookup is not repeated.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// How a policy finds a request's quota.
#[derive(Clone)]
pub(crate) enum Tiers {
    By(Arc<Choose>),
    Lookup(TierLookup),
}

type Choose = dyn Fn(&Parts) -> Option<Quota> + Send + Sync;
type Found = Result<Option<Quota>, Box<dyn StdError + Send + Sync>>;
type Look = dyn Fn(Key) -> Pin<Box<dyn Future<Output = Found> + Send>> + Send + Sync;

/// An asynchronous lookup of a key's quota, with a bounded cache.
///
/// By default 10,000 keys are remembered for 60 s, and a lookup may take 50 ms. One that fails, or
/// takes longer, is logged; the policy's own quota counts then, and the key is not looked up again
/// for a second.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use tollgate::{Key, Policy, Quota, TierLookup, key};
///
/// const PRO: Quota = Quota::per_minute(5_000);
///
/// async fn plan(user: Key) -> Result<Option<Quota>, Infallible> {
///     Ok(if user.as_str().ends_with("ada") { Some(PRO) } else { None })
/// }
///
/// let policy = Policy::new("user", Quota::per_minute(100))
///     .key(key::header("x-user").plain())
///     .tier_lookup(TierLookup::new(plan));
/// # let _ = policy;
/// ```
#[derive(Clone)]
#[must_use]
pub struct TierLookup {
    look: Arc<Look>,
    cache: Cache<Key, Remembered>,
    capacity: u64,
    lifetime: Duration,
    timeout: Duration,
}

#[derive(Clone, Copy)]
struct Remembered {
    quota: Option<Quota>,
    /// When the lookup failed, if it did.
    failed: Option<Instant>,
}

impl TierLookup {
    /// Looks quotas up with a function; `None` stands for the policy's own quota.
    pub fn new<F, T, E>(look: F) -> Self
    where
        F: Fn(Key) -> T + Send + Sync + 'static,
        T: Future<Output = Result<Option<Quota>, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let look = Arc::new(move |key| {
            let found = look(key);
            Box::pin(async move { found.await.map_err(Into::into) }) as Pin<Box<dyn Future<Output = Found> + Send>>
        });
        let (capacity, lifetime, timeout) = (10_000, Duration::from_secs(60), Duration::from_millis(50));
        Self { look, cache: cache(capacity, lifetime), capacity, lifetime, timeout }
    }

    /// Sets how many keys are remembered at most.
    pub fn capacity(self, keys: u64) -> Self {
        Self { capacity: keys, cache: cache(keys, self.lifetime), ..self }
    }

    /// Sets how long a key's quota is remembered.
    pub fn lifetime(self, lifetime: Duration) -> Self {
        // moka refuses more than 1,000 years.
        let lifetime = lifetime.min(Duration::from_secs(365 * 86_400));
        Self { lifetime, cache: cache(self.capacity, lifetime), ..self }
    }

    /// Sets how long a lookup may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// The quota of a key, or `None` for the policy's own; at once if it is remembered.
    pub(crate) fn find(&self, key: &Key) -> Answer<Option<Quota>> {
        let fresh = |found: &Remembered| found.failed.is_none_or(|failed| failed.elapsed() < FAILED_FOR);
        if let Some(found) = self.cache.get(key).filter(fresh) {
            return Answer::Ready(found.quota);
        }
        let (lookup, key) = (self.clone(), key.clone());
        Answer::pending(async move { lookup.look_up(key).await })
    }

    async fn look_up(self, key: Key) -> Option<Quota> {
        let found = tokio::time::timeout(self.timeout, (self.look)(key.clone())).await;
        let remembered = match found {
            Ok(Ok(quota)) => Remembered { quota, failed: None },
            Ok(Err(error)) => failed(&*error),
            Err(late) => failed(&late),
        };
        self.cache.insert(key, remembered);
        remembered.quota
    }
}

fn failed(error: &(dyn StdError + 'static)) -> Remembered {
    tracing::warn!(error, "a tier lookup failed: the policy's own quota counts");
    Remembered { quota: None, failed: Some(Instant::now()) }
}

fn cache(capacity: u64, lifetime: Duration) -> Cache<Key, Remembered> {
    Cache::builder().max_capacity(capacity).time_to_live(lifetime).build()
}

impl fmt::Debug for TierLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TierLookup")
            .field("capacity", &self.capacity)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
