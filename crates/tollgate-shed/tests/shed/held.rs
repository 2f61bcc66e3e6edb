//! What counts as in progress: a request until the end of its body, however it ends, and none that was shed.

use std::convert::Infallible;
use std::io;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use futures::FutureExt;
use futures::channel::mpsc;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, StreamBody};
use tollgate::test_util::ManualClock;
use tollgate_shed::{Class, WorkerShedLayer};
use tower::{Layer, Service as _, service_fn};

use super::rig::{Text, behind, hello, is_shed, of_class, pass, said, send, serving, text};

/// A shedder of a process that serves one request at once.
fn one_at_once(clock: &ManualClock) -> WorkerShedLayer {
    WorkerShedLayer::new("worker", NonZeroU32::MIN).classify(said).clock(clock.clone())
}

/// A response whose body is in progress, and the sender of its frames.
fn open(layer: &WorkerShedLayer) -> (Response<Text>, mpsc::UnboundedSender<Result<Frame<Bytes>, io::Error>>) {
    let (senders, mut receiver) = mpsc::unbounded();
    let service = serving(move |_| {
        let (sender, frames) = mpsc::unbounded();
        senders.unbounded_send(sender).expect("the test waits");
        Response::new(StreamBody::new(frames).boxed_unsync())
    });
    let response = send(&mut behind(layer, service), of_class(Class::Critical));
    (response, receiver.try_recv().expect("the service was called"))
}

/// Whether a request is in progress: then the one place is taken all the time, and shedding begins, which is forgotten
/// after as long without one.
fn is_busy(layer: &WorkerShedLayer, clock: &ManualClock) -> bool {
    pass(&mut behind(layer, hello()), clock, 300);
    layer.level() > 0.0
}

#[test]
fn a_request_is_in_progress_until_the_end_of_its_body() {
    let clock = ManualClock::new();
    let layer = one_at_once(&clock);
    assert!(!is_busy(&layer, &clock));
    let (mut response, sender) = open(&layer);
    sender.unbounded_send(Ok(Frame::data(Bytes::from("hello")))).expect("it is read");
    assert!(response.body_mut().frame().now_or_never().is_some());
    assert!(is_busy(&layer, &clock));
    drop(sender);
    assert!(response.body_mut().frame().now_or_never().flatten().is_none());
    assert!(!is_busy(&layer, &clock), "the body has ended, and is still there");
}

#[test]
fn a_request_is_no_longer_in_progress_however_its_body_ends() {
    let clock = ManualClock::new();
    let layer = one_at_once(&clock);
    // It fails.
    let (mut response, sender) = open(&layer);
    sender.unbounded_send(Err(io::Error::other("the disk is gone"))).expect("it is read");
    assert!(matches!(response.body_mut().frame().now_or_never(), Some(Some(Err(_)))));
    assert!(!is_busy(&layer, &clock));
    // It is dropped.
    drop(open(&layer));
    assert!(!is_busy(&layer, &clock));
    // It reports its end with the last frame, or is empty.
    for body in ["hello", ""] {
        let mut response =
            send(&mut behind(&layer, serving(move |_| Response::new(text(body)))), of_class(Class::Write));
        if !body.is_empty() {
            assert!(response.body_mut().frame().now_or_never().is_some());
        }
        assert!(response.body().is_end_stream());
        assert!(!is_busy(&layer, &clock), "{body:?}");
    }
}

#[test]
fn a_request_without_a_response_is_no_longer_in_progress() {
    let clock = ManualClock::new();
    let layer = one_at_once(&clock);
    // Its client vanishes while the service works.
    let mut never =
        layer.layer(service_fn(|_: Request<String>| std::future::pending::<Result<Response<Text>, Infallible>>()));
    let mut future = Box::pin(never.call(of_class(Class::Read)));
    assert!(future.as_mut().now_or_never().is_none());
    assert!(is_busy(&layer, &clock));
    drop(future);
    assert!(!is_busy(&layer, &clock));
    // The service fails, or panics, when it is called or later.
    let mut fails =
        layer.layer(service_fn(|_: Request<String>| async { Err::<Response<Text>, _>(io::Error::other("no")) }));
    assert!(fails.call(of_class(Class::Read)).now_or_never().expect("at once").is_err());
    assert!(!is_busy(&layer, &clock));
    let mut panics = behind(&layer, serving(|_| panic!("a bug")));
    assert!(catch_unwind(AssertUnwindSafe(|| send(&mut panics, of_class(Class::Read)))).is_err());
    assert!(!is_busy(&layer, &clock));
    let mut late =
        layer.layer(service_fn(|_: Request<String>| async { panic!("a bug") as Result<Response<Text>, Infallible> }));
    let future = late.call(of_class(Class::Read));
    assert!(catch_unwind(AssertUnwindSafe(|| future.now_or_never())).is_err());
    assert!(!is_busy(&layer, &clock));
}

#[test]
fn requests_that_are_shed_are_not_in_progress() {
    let clock = ManualClock::new();
    let layer = one_at_once(&clock);
    let (response, _sender) = open(&layer);
    let mut service = behind(&layer, hello());
    assert!(is_busy(&layer, &clock));
    drop(response);
    // Their responses are read by nobody, for minutes.
    let shed: Vec<_> = (0..100).map(|_| send(&mut service, of_class(Class::Write))).collect();
    assert!(shed.iter().all(is_shed));
    assert!(!is_busy(&layer, &clock));
}
