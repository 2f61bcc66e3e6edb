//! Retries of denied requests.

use std::fmt;
use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Buf;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use tokio::time::{sleep, timeout};
use tower::retry::budget::{Budget, TpsBudget};
use tower::{Layer, Service};
use uuid::Uuid;

use crate::ResponseFuture;
use crate::advice::{self, Advice};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest body of a denied attempt, in bytes, that is read so that its connection serves the next one.
const MAX_DRAIN: usize = 64 * 1_024;
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// A [`Layer`] that sends denied requests again, when the server says.
///
/// A response is a denial if its status is 429 or 503, or its header `grpc-status` is 8 or 14. The [crate](crate) lists
/// the headers that say when to retry. If none says, the layer waits for the [back-off](Self::backoff).
///
/// The last response is passed on unchanged if there are no retries left, if the wait would exceed
/// [`max_wait`](Self::max_wait), if the [budget](Self::budget) is used up, or if the request
/// [must not be retried](Self::retry_if). Errors of the inner service are passed on, and never retried.
///
/// The body is cloned for each attempt, so it must be buffered, such as `Bytes`, `String` or `Full<Bytes>`. Of the body
/// of a denied attempt, up to 64 KiB are read during the wait, for up to a second, so that the connection can be used
/// again.
///
/// Clones share the budget. The layer needs a tokio runtime with timers.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use http::{Request, Response};
/// use tollgate_client::RetryLayer;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Infallible> {
/// static DENIALS: AtomicU32 = AtomicU32::new(0);
///
/// let api = service_fn(async |_: Request<String>| {
///     let status = if DENIALS.fetch_add(1, Relaxed) == 0 { 429 } else { 200 };
///     let response = Response::builder().status(status).header("retry-after", "2");
///     Ok::<_, Infallible>(response.body(String::new()).expect("a response"))
/// });
/// let response = RetryLayer::new().layer(api).oneshot(Request::new(String::new())).await?;
/// assert_eq!(response.status(), 200);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct RetryLayer {
    max_retries: u32,
    max_wait: Duration,
    jitter: Duration,
    backoff: Duration,
    adds_key: bool,
    retry_if: Arc<dyn Fn(&Parts) -> bool + Send + Sync>,
    budget: Arc<dyn Budget + Send + Sync>,
}

impl Default for RetryLayer {
    fn default() -> Self {
        Self {
            max_retries: 3,
            max_wait: Duration::from_secs(30),
            jitter: Duration::from_secs(5),
            backoff: Duration::from_millis(100),
            adds_key: false,
            retry_if: Arc::new(|parts| parts.method.is_idempotent() || parts.headers.contains_key(IDEMPOTENCY_KEY)),
            budget: Arc::new(TpsBudget::default()),
        }
    }
}

impl RetryLayer {
    /// Creates a layer that retries a request up to 3 times, and waits for up to 30 s in all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how often a request is sent again. The default is 3. With 0 no request is.
    pub fn max_retries(self, retries: u32) -> Self {
        Self { max_retries: retries, ..self }
    }

    /// Bounds the sum of the waits of one request. The default is 30 s.
    ///
    /// A denial that asks for a longer wait is passed on at once. The time in which the server responds does not count:
    /// put `tower::timeout` around this layer to bound both.
    pub fn max_wait(self, wait: Duration) -> Self {
        Self { max_wait: wait, ..self }
    }

    /// Adds up to `max` of random jitter to each wait, so that clients that were denied together do not return together.
    ///
    /// The default is 5 s. A wait never becomes more than twice as long, or longer than [`max_wait`](Self::max_wait)
    /// allows, and never shorter than the server said.
    pub fn jitter(self, max: Duration) -> Self {
        Self { jitter: max, ..self }
    }

    /// Sets the first wait after a denial that does not say when to retry. It doubles with each retry. The default is
    /// 100 ms.
    pub fn backoff(self, first: Duration) -> Self {
        Self { backoff: first, ..self }
    }

    /// Adds one random `Idempotency-Key` to all attempts of a request whose method is not idempotent, such as POST.
    ///
    /// By default, requests with this header are retried. A header that the caller has set is kept. The value is a UUID
    /// in quotes, as in draft-ietf-httpapi-idempotency-key-header. Use it only for servers that know the header.
    pub fn idempotency_key(self) -> Self {
        Self { adds_key: true, ..self }
    }

    /// Sets which requests may be retried.
    ///
    /// The default is requests whose method [is idempotent](http::Method::is_idempotent), and requests with the header
    /// `Idempotency-Key`. gRPC calls are POST: use `|_| true` if their server denies them before it executes them, as
    /// tollgate does.
    pub fn retry_if(self, may: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self { retry_if: Arc::new(may), ..self }
    }

    /// Sets the budget of retries, which all clones of the layer share.
    ///
    /// Each response that is no denial is a deposit, and each retry a withdrawal. The default is a
    /// [`TpsBudget`](crate::budget::TpsBudget): over 10 s, a retry for 5 such responses, and a reserve of 100 at once,
    /// which returns within seconds. So an outage is not multiplied by [`max_retries`](Self::max_retries).
    pub fn budget(self, budget: impl Budget + Send + Sync + 'static) -> Self {
        Self { budget: Arc::new(budget), ..self }
    }

    fn pause(&self, advice: Advice, retries: u32, waited: Duration) -> Option<Duration> {
        let wait = match advice {
            Advice::After(wait) => wait,
            Advice::Unsaid => self.backoff.saturating_mul(1 << retries.min(20)),
            Advice::Never => return None,
        };
        let room = self.max_wait.checked_sub(waited)?.checked_sub(wait)?;
        let jitter = wait.min(self.jitter).min(room).mul_f64(fastrand::f64());
        self.budget.withdraw().then(|| wait.saturating_add(jitter))
    }

    async fn send<S, B, R>(self, mut service: S, request: Request<B>) -> Result<Response<R>, S::Error>
    where
        S: Service<Request<B>, Response = Response<R>>,
        B: Clone,
        R: Body,
    {
        let (mut parts, body) = request.into_parts();
        if self.adds_key && !parts.method.is_idempotent() && !parts.headers.contains_key(IDEMPOTENCY_KEY) {
            let key = HeaderValue::try_from(format!("\"{}\"", Uuid::new_v4())).expect("a UUID is ASCII");
            parts.headers.insert(IDEMPOTENCY_KEY, key);
        }
        let max_retries = if (self.retry_if)(&parts) { self.max_retries } else { 0 };
        let (mut next, mut retries, mut waited) = ((parts, body), 0, Duration::ZERO);
        loop {
            let (parts, body) = next;
            let again = (retries < max_retries).then(|| (parts.clone(), body.clone()));
            let response = service.call(Request::from_parts(parts, body)).await?;
            let Some(advice) = advice::of_denial(&response) else {
                self.budget.deposit();
                return Ok(response);
            };
            let Some(again) = again else { return Ok(response) };
            let Some(wait) = self.pause(advice, retries, waited) else { return Ok(response) };
            tracing::debug!(status = response.status().as_u16(), retries, ?wait, "request denied, will retry");
            let pause = sleep(wait);
            let _ = timeout(wait.min(DRAIN_TIME), drain(response.into_body())).await;
            pause.await;
            (next, retries, waited) = (again, retries + 1, waited + wait);
            poll_fn(|cx| service.poll_ready(cx)).await?;
        }
    }
}

impl fmt::Debug for RetryLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLayer")
            .field("max_retries", &self.max_retries)
            .field("max_wait", &self.max_wait)
            .field("jitter", &self.jitter)
            .field("backoff", &self.backoff)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry { inner, layer: self.clone() }
    }
}

/// A [`Service`] that sends denied requests again, created by a [`RetryLayer`].
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct Retry<S> {
    inner: S,
    layer: RetryLayer,
}

impl<S, B, R> Service<Request<B>> for Retry<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Clone + Send + 'static,
    R: Body + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = ResponseFuture<Response<R>, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The instance that is ready is called. Its clone is not ready.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        ResponseFuture::new(self.layer.clone().send(ready, request))
    }
}

async fn drain(body: impl Body) {
    let (mut body, mut left) = (pin!(body), MAX_DRAIN);
    while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        // An empty frame counts, because a body may have any number of them.
        let size = frame.data_ref().map_or(0, Buf::remaining).max(1);
        let Some(rest) = left.checked_sub(size) else { return };
        left = rest;
    }
}
