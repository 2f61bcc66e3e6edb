//! Servers that want a client to stop, to wait or to grow.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use tokio::time::Instant;
use tollgate_client::PaceLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

use super::rig::{Api, denial, exact, get, send};
use super::slow::many;

#[tokio::test(start_paused = true)]
async fn endless_retry_after_0_is_backed_off_and_ends() {
    let start = Instant::now();
    let api = Api::new((0..100).map(|_| denial(429, &[("retry-after", "0")])));
    let (status, calls) = send(&exact(), &api, get()).await;
    assert_eq!((status, calls.len()), (StatusCode::TOO_MANY_REQUESTS, 4));
    assert_eq!(start.elapsed().as_millis() / 10, 70);
}

/// A body without an end: frames of a size at once, or one each time.
struct Endless {
    size: usize,
    pause: Option<(Duration, Option<Pin<Box<tokio::time::Sleep>>>)>,
    read: Arc<AtomicU64>,
}

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some((pause, sleep)) = &mut self.pause {
            let pending = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(*pause)));
            if pending.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            *sleep = None;
        }
        self.read.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; self.size])))))
    }
}

#[tokio::test(start_paused = true)]
async fn of_an_endless_body_little_is_read_and_the_retry_is_in_time() {
    let slow = Some(Duration::from_millis(10));
    for (size, pause, most) in [(4_096, None, 17), (0, None, 65_537), (1, slow, 101), (65_537, None, 1)] {
        let (read, calls) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counted, seen) = (Arc::clone(&read), Arc::clone(&calls));
        let api = service_fn(move |_: Request<String>| {
            let status = if seen.fetch_add(1, Ordering::Relaxed) == 0 { 429 } else { 200 };
            let body = Endless { size, pause: pause.map(|pause| (pause, None)), read: Arc::clone(&counted) };
            let response = Response::builder().status(status).header("retry-after", "5").body(body);
            std::future::ready(Ok::<_, Infallible>(response.expect("a response")))
        });
        let start = Instant::now();
        let response = exact().layer(api).oneshot(get()).await.expect("a response");
        assert_eq!((response.status().as_u16(), start.elapsed().as_secs()), (200, 5));
        let read = read.load(Ordering::Relaxed);
        assert!((1..=most).contains(&read), "{read} frames of {size}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_million_hosts_are_neither_kept_nor_slow() {
    // Each wants to be paced for as long as it can.
    let api = service_fn(|_: Request<String>| {
        let response = Response::builder().header("ratelimit", r#""api";r=0;t=999999"#).body(String::new());
        std::future::ready(Ok::<_, Infallible>(response.expect("a response")))
    });
    let layer = PaceLayer::new();
    let mut service = layer.layer(api);
    let hosts = many([20_000, 1_000_000]);
    let start = Instant::now();
    for host in 0..hosts {
        let request = Request::get(format!("http://h{host}.example/")).body(String::new()).expect("a request");
        service.ready().await.expect("ready").call(request).await.expect("a response");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let kept = format!("{layer:?}").matches("held_until").count();
    assert_eq!(kept, 1_024);
    // Once they do not pace, others take their places.
    tokio::time::sleep(Duration::from_secs(61)).await;
    for _ in 0..2 {
        service.ready().await.expect("ready").call(get()).await.expect("a response");
    }
    assert_eq!(start.elapsed().as_secs(), 61 + 60);
    assert_eq!(format!("{layer:?}").matches("held_until").count(), 1);
}
