//! What both shedders do with a request: determine its class, respond to one that is shed, and report both: metrics, and
//! one log line when an episode of shedding begins, and one when it ends.
//!
//! An episode begins with the first request that is shed, and ends with the first request that comes a minute or more
//! after the last one that was shed. The response to a gRPC call is `UNAVAILABLE`, to all others a 503 with a problem
//! document, which names the shedder. When to retry is a guess: how long there will be too much load is not known.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};

use super::class::{Class, Shed};
use crate::core::{Lines, PolicyName};
use crate::http::grpc;
use crate::http::headers::whole_seconds;
use crate::http::policy::Refused;
use crate::http::response::{closing, problem, without_body};
use crate::telemetry::PolicyTelemetry;

/// Determines the class of requests: a closure, or [`Class::of`].
#[derive(Clone)]
pub(super) struct Classifier(Arc<dyn Fn(&Parts) -> Class + Send + Sync>);

impl Classifier {
    pub(super) fn new(class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> Self {
        Self(Arc::new(class))
    }

    /// Determines the class of a request, once, and inserts it into its extensions.
    pub(super) fn classify(&self, parts: &mut Parts) -> Class {
        let class = (self.0)(parts);
        // That of a shedder further outside is there already; each insertion allocates.
        if parts.extensions.get() != Some(&class) {
            parts.extensions.insert(class);
        }
        class
    }
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new(Class::of)
    }
}

/// After so long without a request that was shed an episode is over.
const QUIET: Duration = Duration::from_secs(60);

/// Reports what one shedder does.
#[derive(Debug)]
pub(super) struct Report {
    name: PolicyName,
    telemetry: PolicyTelemetry,
    unknown: Lines,
    /// Whether there is an episode: without one, a request needs no lock.
    is_shedding: AtomicBool,
    episode: Mutex<Option<Episode>>,
}

/// A time in which requests are shed.
#[derive(Clone, Copy, Debug)]
struct Episode {
    began: Duration,
    /// When the last request was shed.
    last: Duration,
    /// How many were.
    shed: u64,
}

impl Report {
    pub(super) fn new(name: PolicyName) -> Self {
        let telemetry = PolicyTelemetry::new(&name);
        let (unknown, is_shedding) = (Lines::new(), AtomicBool::new(false));
        Self { name, telemetry, unknown, is_shedding, episode: Mutex::default() }
    }

    pub(super) fn name(&self) -> &PolicyName {
        &self.name
    }

    /// A request comes, which may be shed. The clock is read only in an episode.
    pub(super) fn offered(&self, class: Class, now: impl FnOnce() -> Duration) {
        self.telemetry.offered(class as usize);
        if !self.is_shedding.load(Ordering::Relaxed) {
            return;
        }
        let (now, mut episode) = (now(), self.episode());
        let is_over = |episode: &mut Episode| {
            // The clock may have stepped back.
            episode.last = episode.last.min(now);
            now.saturating_sub(episode.last) >= QUIET
        };
        if let Some(ended) = episode.take_if(is_over) {
            self.is_shedding.store(false, Ordering::Relaxed);
            drop(episode);
            let (policy, shed) = (self.name.as_str(), ended.shed);
            let lasted = ended.last.saturating_sub(ended.began);
            tracing::info!(code = "shedding_ended", policy, shed, ?lasted, "no request was shed for a minute");
        }
    }

    /// A request is shed, at a utilization if that is the reason.
    pub(super) fn shed(&self, class: Class, now: Duration, utilization: Option<f64>) {
        self.telemetry.shed(class as usize);
        let mut episode = self.episode();
        let running = episode.get_or_insert(Episode { began: now, last: now, shed: 0 });
        running.last = now;
        running.shed += 1;
        let is_first = running.shed == 1;
        self.is_shedding.store(true, Ordering::Relaxed);
        drop(episode);
        if is_first {
            let (policy, class) = (self.name.as_str(), class.as_str());
            tracing::warn!(code = "shedding", policy, class, utilization, "requests are shed: too much is in progress");
        }
    }

    /// A sample of the utilization led to a level.
    pub(super) fn level(&self, level: f64, utilization: f64) {
        self.telemetry.level(level, utilization);
        if utilization.is_nan() {
            let policy = self.name.as_str();
            self.unknown.log(policy, |more| {
                tracing::warn!(
                    code = "utilization_unknown",
                    policy,
                    more,
                    "the closure of a shedder returned NaN: it was ignored"
                );
            });
        }
    }

    fn episode(&self) -> MutexGuard<'_, Option<Episode>> {
        self.episode.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the response to a request that `name` has shed, to be retried after about `wait`.
pub(super) fn response(parts: &Parts, name: &PolicyName, class: Class, wait: Duration) -> Response<Bytes> {
    let mut response = if grpc::is_call(parts) {
        grpc::for_client(parts, grpc::unavailable(wait))
    } else {
        problem::shed(whole_seconds(wait).max(1), name)
    };
    response.extensions_mut().insert(Refused::Inside);
    response.extensions_mut().insert(Shed { name: name.clone(), class });
    closing(parts, if parts.method == Method::HEAD { without_body(response) } else { response })
}
