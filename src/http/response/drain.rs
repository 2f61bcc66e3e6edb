//! Draining of denied requests: reads and drops the rest of the request.
//!
//! A server closes an HTTP/1 connection whose request body it did not read. If the client is still sending, the kernel
//! resets the connection, and a client that writes its whole body before it reads never sees the response.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use bytes::Buf;
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Version};
use http_body::{Body, Frame};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::timeout;

/// One permit for each body that the process drains.
static PERMITS: Semaphore = Semaphore::const_new(1_024);

const IDLE: Duration = Duration::from_secs(2);

/// Longest body, in bytes, that a server reads by itself if it has arrived.
const READ_ANYWAY: u64 = 4_096;

/// Bounds of draining the body of a denied request over HTTP/1, so that its client sees the response.
///
/// [`RateLimitLayer::drain_denied`](crate::RateLimitLayer::drain_denied) has the reasons. Use it in your own layers
/// that respond without calling their inner service. The default is the default of a layer, 16 MiB in 30 s.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    max_bytes: u64,
    time: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { max_bytes: 16 * 1_024 * 1_024, time: Duration::from_secs(30) }
    }
}

impl Drain {
    /// Creates bounds of `max_bytes` and `time`. If either is 0, nothing is read.
    pub fn new(max_bytes: u64, time: Duration) -> Self {
        Self { max_bytes, time }
    }

    /// Drains the body of a request in a task, while a response with these headers is sent.
    ///
    /// It adds `Connection: close` if the server may close the connection.
    pub fn start(self, parts: &Parts, body: impl Body + Send + 'static, headers: &mut HeaderMap) {
        if body.is_end_stream() || parts.version >= Version::HTTP_2 {
            return;
        }
        let size = body.size_hint().exact();
        let read = if parts.headers.contains_key(EXPECT) {
            // Reads nothing, because the client sends the body only once the server asks for it by reading.
            0
        } else if parts.method != Method::CONNECT && self.spawn(body) {
            self.max_bytes.max(READ_ANYWAY)
        } else {
            READ_ANYWAY
        };
        if size.is_none_or(|size| size > read) {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    /// Drains in a task, because the server sends the response only once the service returned it.
    fn spawn(self, body: impl Body + Send + 'static) -> bool {
        if self.max_bytes == 0 || self.time.is_zero() {
            return false;
        }
        let (Ok(runtime), Ok(permit)) = (Handle::try_current(), PERMITS.try_acquire()) else { return false };
        runtime.spawn(async move {
            let _ = timeout(self.time, read(body, self.max_bytes)).await;
            drop(permit);
        });
        true
    }
}

async fn read(body: impl Body, max_bytes: u64) {
    let (mut body, mut left) = (pin!(body), max_bytes);
    loop {
        let size = poll_fn(|cx| {
            let size = |frame: Frame<_>| frame.data_ref().map_or(0, |data| Buf::remaining(data) as u64);
            body.as_mut().poll_frame(cx).map(|frame| frame?.ok().map(size))
        });
        let Ok(Some(size)) = timeout(IDLE, size).await else { return };
        let Some(rest) = left.checked_sub(size) else { return };
        left = rest;
        // A body that is always ready would block its thread, and the timer would not be polled.
        yield_now().await;
    }
}
