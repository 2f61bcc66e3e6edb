//! Parts that both shedders share: they determine the class of a request, respond to shed requests, and report metrics
//! and log lines.
//!
//! An episode of shedding begins with the first shed request, and ends with the first request that arrives a minute or
//! more after the last shed one. Both are logged. The response to a gRPC call is `UNAVAILABLE`. All other responses are
//! a 503 with a problem document, which names the shedder. The time to retry is a guess, because it is unknown how long
//! the overload lasts.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use tokio::time::Instant;
use tollgate::policy::PolicyName;
use tollgate::response::unavailable;
use tollgate::store::Clock;

use crate::events::{Lines, Metrics};

/// The importance of a request: the lower, the sooner it is shed.
///
/// Classes are ordered from `Critical`, which is never shed, to `Test`, which is shed first.
///
/// # Examples
///
/// ```
/// use tollgate_shed::Class;
///
/// assert!(Class::Critical < Class::Write && Class::Write < Class::Read && Class::Read < Class::Test);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Never shed.
    Critical,
    /// Changes something.
    Write,
    /// Only reads.
    Read,
    /// Test traffic: the first to be shed.
    Test,
}

impl Class {
    /// Returns the class in the extensions of the request, or otherwise [`Read`](Self::Read) for GET, HEAD, OPTIONS and
    /// TRACE, and [`Write`](Self::Write) for other methods.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Request;
    /// use tollgate_shed::Class;
    ///
    /// let (mut parts, ()) = Request::post("/charges").body(())?.into_parts();
    /// assert_eq!(Class::from_parts(&parts), Class::Write);
    /// parts.extensions.insert(Class::Critical);
    /// assert_eq!(Class::from_parts(&parts), Class::Critical);
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn from_parts(parts: &Parts) -> Self {
        parts.extensions.get().copied().unwrap_or(match parts.method {
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE => Self::Read,
            _ => Self::Write,
        })
    }

    /// Returns the class as the labels of metrics have it: `"critical"`, `"write"`, `"read"` or `"test"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Write => "write",
            Self::Read => "read",
            Self::Test => "test",
        }
    }
}

/// The shedder and the class of a shed request, in the extensions of its response.
///
/// # Examples
///
/// ```
/// use http::{Request, Response};
/// use std::convert::Infallible;
/// use tollgate_shed::{Class, FleetShedLayer, Shed};
/// use tollgate::{MemoryStore, Quota};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Infallible> {
/// let inner = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) });
/// let service = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(2), 0.5).layer(inner);
///
/// // It is in progress until the end of its body. The other slot is for critical requests.
/// let first = service.clone().oneshot(Request::new(String::new())).await?;
/// let second = service.oneshot(Request::new(String::new())).await?;
/// let shed = second.extensions().get::<Shed>().expect("it was shed");
/// assert_eq!((shed.name(), shed.class()), ("fleet", Class::Read));
/// # drop(first);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shed {
    name: PolicyName,
    class: Class,
}

impl Shed {
    /// Returns the name of the shedder.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the class of the request.
    pub fn class(&self) -> Class {
        self.class
    }
}

const QUIET: Duration = Duration::from_secs(60);

pub(crate) struct Shedder {
    pub(crate) name: PolicyName,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) class: Arc<dyn Fn(&Parts) -> Class + Send + Sync>,
    metrics: Metrics,
    unknown: Lines,
    /// 0 without an episode: then a request needs no lock.
    shed: AtomicU64,
    episode: Mutex<Episode>,
}

#[derive(Default)]
struct Episode {
    began: Duration,
    last: Duration,
    utilization: Option<f64>,
}

impl Shedder {
    pub(crate) fn new(name: PolicyName) -> Self {
        let (metrics, start) = (Metrics::new(&name), Instant::now());
        Self {
            name,
            clock: Arc::new(move || start.elapsed()),
            class: Arc::new(Class::from_parts),
            metrics,
            unknown: Lines::new(Duration::from_secs(1)),
            shed: AtomicU64::new(0),
            episode: Mutex::default(),
        }
    }

    pub(crate) fn anew(&self) -> Self {
        let (clock, class) = (Arc::clone(&self.clock), Arc::clone(&self.class));
        Self { clock, class, ..Self::new(self.name.clone()) }
    }

    pub(crate) fn offered(&self, parts: &mut Parts) -> Class {
        let class = (self.class)(parts);
        // An outer shedder may have inserted it already. Each insertion allocates.
        if parts.extensions.get() != Some(&class) {
            parts.extensions.insert(class);
        }
        self.metrics.offered(class);
        if self.shed.load(Ordering::Relaxed) == 0 {
            return class;
        }
        let (now, mut episode) = (self.clock.now(), self.episode());
        // The clock may have stepped back.
        episode.last = episode.last.min(now);
        if now.saturating_sub(episode.last) >= QUIET {
            // No other request ends it as well.
            let lasted = mem::replace(&mut episode.last, now).saturating_sub(episode.began);
            let shed = self.shed.swap(0, Ordering::Relaxed);
            drop(episode);
            let policy = self.name.as_str();
            tracing::info!(code = "shedding_ended", policy, shed, ?lasted, "no request shed for a minute");
        }
        class
    }

    /// `Retry-After` is `least` and a random part of `more`, because clients that are shed together should not return
    /// together.
    pub(crate) fn shed(&self, parts: &Parts, least: Duration, more: Duration) -> Response<Bytes> {
        let class = Class::from_parts(parts);
        self.metrics.shed(class);
        let (now, mut episode) = (self.clock.now(), self.episode());
        episode.last = now;
        let (is_first, utilization) = (self.shed.fetch_add(1, Ordering::Relaxed) == 0, episode.utilization);
        if is_first {
            episode.began = now;
        }
        drop(episode);
        if is_first {
            let (policy, class) = (self.name.as_str(), class.as_str());
            tracing::warn!(code = "shedding", policy, class, utilization, "requests shed, too many in progress");
        }
        let more = Duration::from_millis(fastrand::u64(..=u64::try_from(more.as_millis()).unwrap_or(u64::MAX)));
        let mut response = unavailable(parts, &self.name, least.saturating_add(more));
        response.extensions_mut().insert(Shed { name: self.name.clone(), class });
        response
    }

    pub(crate) fn sampled(&self, level: f64, utilization: f64) {
        self.metrics.level(level, utilization);
        self.episode().utilization = Some(utilization);
        if utilization.is_nan() {
            let (policy, text) = (self.name.as_str(), "the closure of a shedder returned NaN: it was ignored");
            self.unknown.log(|more| tracing::warn!(code = "utilization_unknown", policy, more, "{text}"));
        }
    }

    fn episode(&self) -> MutexGuard<'_, Episode> {
        self.episode.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shedder").field("name", &self.name).finish_non_exhaustive()
    }
}
