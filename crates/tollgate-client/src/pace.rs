//! Pacing: requests wait before the limit of a host is reached.
//!
//! Requests to a host wait in a queue, of which only the head waits for the time. It takes its place when it leaves, so
//! who leaves early takes none.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, Request, Response, Uri, header};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout_at};
use tower::{Layer, Service};

use crate::ResponseFuture;
use crate::advice::{self, Advice};

const MAX_HOSTS: usize = 1_024;
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A longer bound would overflow an `Instant`.
const MAX_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A [`Layer`] that spreads the requests to each host over the time that its responses name.
///
/// A response with `RateLimit: "api";r=9;t=60` leaves 9 requests for 60 s, so further requests to this host start a
/// ninth of that apart, less the requests that are in flight. With `r=0`, or after a denial, none starts before that
/// time is over. Of several policies, the strictest counts. Until a first response has named a limit, nothing waits.
///
/// A host is the authority of the request's URI, or its header `Host`. The layer keeps up to 1,024 hosts. Beyond that,
/// it forgets hosts for which nothing waits, and does not pace new ones while there are none.
///
/// Requests to a host wait in order, without a timeout: put `tower::timeout` around this layer. A future that waits and
/// is neither polled nor dropped stops those behind it. It also keeps the readiness of the inner service, so put a
/// concurrency limit outside. Clones share their hosts. The layer needs a tokio runtime with timers.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tokio::time::Instant;
/// use tollgate_client::PaceLayer;
/// use tower::{Layer, Service, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Infallible> {
/// let api = service_fn(async |_: Request<()>| {
///     Ok::<_, Infallible>(Response::builder().header("ratelimit", r#""api";r=10;t=20"#).body(()).expect("a response"))
/// });
/// let mut client = PaceLayer::new().layer(api);
/// let start = Instant::now();
/// for _ in 0..3 {
///     let request = Request::get("http://api.example/").body(()).expect("a request");
///     client.ready().await?.call(request).await?;
/// }
/// assert_eq!(start.elapsed().as_secs(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PaceLayer {
    hosts: Arc<Mutex<Hosts>>,
    max_wait: Duration,
    when_left: u64,
}

impl Default for PaceLayer {
    fn default() -> Self {
        Self { hosts: Arc::default(), max_wait: Duration::from_secs(60), when_left: u64::MAX }
    }
}

impl PaceLayer {
    /// Creates a layer that spreads all requests evenly.
    pub fn new() -> Self {
        Self::default()
    }

    /// Spreads requests only while a policy has at most `requests` left, so that bursts pass before.
    pub fn when_left(self, requests: u64) -> Self {
        Self { when_left: requests, ..self }
    }

    /// Bounds how long one response delays the next request. The default is 60 s, and the maximum 365 days.
    ///
    /// A longer time in a header counts as this one, so that no server can stop its clients. In a queue, each request
    /// may wait as long after the request before it.
    pub fn max_wait(self, wait: Duration) -> Self {
        Self { max_wait: wait.min(MAX_WAIT), ..self }
    }

    fn learn<R>(&self, host: &Host, response: &Response<R>) {
        let (mut hold, mut interval) = (Duration::ZERO, None);
        let (remaining, advice) = (advice::remaining(response.headers()), advice::of_denial(response));
        let mut pace = lock(&host.pace);
        for (left, reset) in remaining {
            let left = if left > self.when_left { u64::MAX } else { left.saturating_sub(pace.in_flight - 1) };
            if left == 0 {
                hold = hold.max(reset);
            }
            let share = reset / u32::try_from(left.max(1)).unwrap_or(u32::MAX);
            interval = interval.max(Some(share.min(self.max_wait)));
        }
        if let Some(Advice::After(wait)) = advice {
            hold = hold.max(wait);
        } else if interval.is_none() {
            return;
        }
        pace.interval = interval.unwrap_or(pace.interval);
        pace.held_until = Instant::now() + hold.min(self.max_wait);
        host.learned.notify_one();
    }
}

impl<S> Layer<S> for PaceLayer {
    type Service = Pace<S>;

    fn layer(&self, inner: S) -> Pace<S> {
        Pace { inner, layer: self.clone() }
    }
}

/// A [`Service`] that spreads the requests to each host, created by a [`PaceLayer`].
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct Pace<S> {
    inner: S,
    layer: PaceLayer,
}

impl<S, B, R> Service<Request<B>> for Pace<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<Response<R>, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let clone = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        ResponseFuture::new(async move {
            let host = lock(&layer.hosts).get(name(request.uri(), request.headers()));
            let Some(host) = host else { return ready.call(request).await };
            let _in_flight = host.turn().await;
            let response = ready.call(request).await?;
            layer.learn(&host, &response);
            Ok(response)
        })
    }
}

#[derive(Debug, Default)]
struct Hosts {
    by_name: HashMap<String, Arc<Host>>,
    swept: Option<Instant>,
}

impl Hosts {
    fn get(&mut self, name: String) -> Option<Arc<Host>> {
        if self.by_name.len() >= MAX_HOSTS && !self.by_name.contains_key(&name) {
            self.sweep();
            if self.by_name.len() >= MAX_HOSTS {
                return None;
            }
        }
        Some(Arc::clone(self.by_name.entry(name).or_insert_with(|| Arc::new(Host::new()))))
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        // Not for each of many new hosts, because it looks at every host.
        if self.swept.is_none_or(|swept| now - swept >= SWEEP_INTERVAL) {
            self.swept = Some(now);
            self.by_name.retain(|_, host| Arc::strong_count(host) > 1 || lock(&host.pace).next() > now);
        }
    }
}

#[derive(Debug)]
struct Host {
    /// Its single permit is the turn of the head of the queue.
    first: Semaphore,
    /// Wakes the head of the queue.
    learned: Notify,
    pace: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Start of the latest request.
    latest: Instant,
    interval: Duration,
    held_until: Instant,
    in_flight: u64,
}

impl State {
    fn next(&self) -> Instant {
        self.held_until.max(self.latest + self.interval)
    }
}

impl Host {
    fn new() -> Self {
        let now = Instant::now();
        let pace = State { latest: now, interval: Duration::ZERO, held_until: now, in_flight: 0 };
        Self { first: Semaphore::new(1), learned: Notify::new(), pace: Mutex::new(pace) }
    }

    async fn turn(&self) -> InFlight<'_> {
        let _first = self.first.acquire().await;
        loop {
            let next = {
                let (mut pace, now) = (lock(&self.pace), Instant::now());
                if pace.next() <= now {
                    (pace.latest, pace.in_flight) = (now, pace.in_flight + 1);
                    return InFlight(self);
                }
                pace.next()
            };
            let _ = timeout_at(next, self.learned.notified()).await;
        }
    }
}

/// A request in flight, until it is dropped.
struct InFlight<'a>(&'a Host);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        lock(&self.0.pace).in_flight -= 1;
    }
}

fn name(uri: &Uri, headers: &HeaderMap) -> String {
    let host = || headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let authority = uri.authority().map_or_else(host, |authority| authority.as_str());
    // Credentials are no part of a host.
    authority.rsplit('@').next().unwrap_or_default().to_ascii_lowercase()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
