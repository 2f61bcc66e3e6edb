//! Reads and drops what the client of a refused request still sends.
//!
//! A server closes a connection of HTTP/1 whose request body it did not read. If the client is still sending, the kernel
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

/// A permit for each body that the process drains.
static PERMITS: Semaphore = Semaphore::const_new(1_024);

/// A client that sends nothing for so long has stopped.
const IDLE: Duration = Duration::from_secs(2);

/// The longest body that a server reads by itself, if it is there already.
const READ_ANYWAY: u64 = 4_096;

/// How much of the body of a denied request is read and dropped over HTTP/1, so that its client sees the response:
/// [`RateLimitLayer::drain_denied`](crate::RateLimitLayer::drain_denied) says why.
///
/// It is for layers of your own that respond without calling their inner service. The default is that of a layer, 16 MiB
/// in 30 s.
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
    /// Up to so many bytes, for no longer than `time`; with 0 of either nothing is read.
    pub fn new(max_bytes: u64, time: Duration) -> Self {
        Self { max_bytes, time }
    }

    /// Drains the body of a request in a task, while a response with these headers is sent: `Connection: close` is added if
    /// the server may close the connection.
    pub fn start(self, parts: &Parts, body: impl Body + Send + 'static, headers: &mut HeaderMap) {
        if body.is_end_stream() || parts.version >= Version::HTTP_2 {
            return;
        }
        let size = body.size_hint().exact();
        let read = if parts.headers.contains_key(EXPECT) {
            // The client sends the body once the server asks for it by reading.
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

    /// Drains a body in a task, because the server sends the response only when the service has returned it. Returns
    /// `false` if it is not drained.
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
        // A body that is always ready would keep its thread, and the timer from being looked at.
        yield_now().await;
    }
}
