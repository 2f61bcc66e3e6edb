//! Requests that are spread ahead of denials.

use std::convert::Infallible;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use http::{Request, Response};
use tokio::time::{Instant, sleep, timeout};
use tollgate_client::PaceLayer;
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{Service, get};

const SECOND: Duration = Duration::from_secs(1);

/// An API whose responses have this header.
fn api(name: &'static str, value: &'static str) -> Service {
    BoxCloneService::new(service_fn(move |_: Request<String>| {
        let response = Response::builder().header(name, value).body(String::new()).expect("a response");
        std::future::ready(Ok::<_, Infallible>(response))
    }))
}

fn to(uri: &str) -> Request<String> {
    Request::get(uri).body(String::new()).expect("a request")
}

/// When each of some requests at once was answered, in tenths of a second, after one that learned the limit.
async fn times(layer: PaceLayer, inner: Service, requests: usize) -> Vec<u128> {
    let service = layer.layer(inner);
    let start = Instant::now();
    service.clone().oneshot(get()).await.expect("a response");
    let call = |_| service.clone().oneshot(get()).map(|_| start.elapsed().as_millis() / 100);
    let mut times: Vec<_> = join_all((0..requests).map(call)).await;
    times.sort_unstable();
    times
}

#[tokio::test(start_paused = true)]
async fn requests_are_spread_over_what_is_left() {
    let rows: [(&str, [u128; 3]); 6] = [
        (r#""api";r=10;t=20"#, [20, 40, 60]),
        (r#""api";r=10;t=20, "day";r=100;t=1000"#, [100, 200, 300]),
        (r#""api";r=0;t=3"#, [30, 60, 90]),
        (r#""api";r=1000000;t=1"#, [0, 0, 0]),
        (r#""api";r=-1;t=20"#, [0, 0, 0]),
        ("nothing", [0, 0, 0]),
    ];
    for (header, expected) in rows {
        assert_eq!(times(PaceLayer::new(), api("ratelimit", header), 3).await, expected, "{header}");
    }
}

#[tokio::test(start_paused = true)]
async fn bursts_pass_until_few_are_left() {
    let layer = PaceLayer::new().when_left(10);
    assert_eq!(times(layer.clone(), api("ratelimit", r#""api";r=11;t=22"#), 3).await, [0, 0, 0]);
    assert_eq!(times(PaceLayer::new().when_left(10), api("ratelimit", r#""api";r=10;t=20"#), 3).await, [20, 40, 60]);
}

#[tokio::test(start_paused = true)]
async fn no_header_stops_a_client_for_longer_than_allowed() {
    for header in [r#""api";r=0;t=999999999999999"#, r#""api";r=1;t=999999999999999"#] {
        assert_eq!(times(PaceLayer::new(), api("ratelimit", header), 2).await, [600, 1_200], "{header}");
        assert_eq!(times(PaceLayer::new().max_wait(SECOND), api("ratelimit", header), 2).await, [10, 20], "{header}");
    }
    let service = PaceLayer::new().max_wait(Duration::MAX).layer(api("ratelimit", r#""api";r=0;t=999999999999999"#));
    service.clone().oneshot(get()).await.expect("a response");
    assert!(timeout(1_000 * SECOND, service.oneshot(get())).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn after_a_denial_no_caller_sends_before_its_wait_is_over() {
    let denied = service_fn(|_: Request<String>| {
        let response = Response::builder().status(429).header("retry-after", "4").body(String::new());
        std::future::ready(Ok::<_, Infallible>(response.expect("a response")))
    });
    assert_eq!(times(PaceLayer::new(), BoxCloneService::new(denied), 1).await, [40]);
}

#[tokio::test(start_paused = true)]
async fn callers_who_leave_while_waiting_take_no_place() {
    let service = PaceLayer::new().layer(api("ratelimit", r#""api";r=10;t=20"#));
    let start = Instant::now();
    service.clone().oneshot(get()).await.expect("a response");
    // The head of the queue and nine behind it leave.
    let leaving = (0..10).map(|_| timeout(SECOND, service.clone().oneshot(get())));
    assert!(join_all(leaving).await.iter().all(Result::is_err));
    service.clone().oneshot(get()).await.expect("a response");
    assert_eq!(start.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_says_less_wakes_who_waits() {
    // The first response comes first and says that nothing is left for a minute. The second one knows better.
    let service = PaceLayer::new().layer(service_fn(|request: Request<String>| async move {
        let (after, header) = match request.uri().path() {
            "/first" => (SECOND, r#""api";r=0;t=60"#),
            "/second" => (2 * SECOND, r#""api";r=10;t=10"#),
            _ => (Duration::ZERO, r#""api";r=10;t=10"#),
        };
        sleep(after).await;
        let response = Response::builder().header("ratelimit", header).body(String::new()).expect("a response");
        Ok::<_, Infallible>(response)
    }));
    let start = Instant::now();
    let first = service.clone().oneshot(to("http://api.example/first"));
    let second = service.clone().oneshot(to("http://api.example/second"));
    let third = async {
        sleep(Duration::from_millis(1_500)).await;
        service.clone().oneshot(to("http://api.example/third")).await
    };
    let (first, second, third) = tokio::join!(first, second, third);
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    assert_eq!(start.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_count_as_sent() {
    let service = PaceLayer::new().layer(service_fn(|request: Request<String>| async move {
        let mut response = Response::new(String::new());
        if request.uri().path() == "/slow" {
            sleep(60 * SECOND).await;
        } else {
            sleep(SECOND).await;
            response.headers_mut().insert("ratelimit", r#""api";r=6;t=12"#.parse().expect("a value"));
        }
        Ok::<_, Infallible>(response)
    }));
    let start = Instant::now();
    let slow = (0..3).map(|_| tokio::spawn(service.clone().oneshot(to("http://api.example/slow"))));
    let _slow = slow.collect::<Vec<_>>();
    sleep(Duration::from_millis(1)).await;
    // 3 of the 6 that are left are in flight, so 12 s are spread over the others.
    for expected in [1, 5, 9] {
        service.clone().oneshot(get()).await.expect("a response");
        assert_eq!(start.elapsed().as_secs(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_do_not_wait_for_each_other_and_all_spellings_are_one() {
    let service = PaceLayer::new().layer(api("ratelimit", r#""api";r=1;t=10"#));
    let start = Instant::now();
    for uri in ["http://a.example/", "http://b.example/", "http://b.example:8080/"] {
        service.clone().oneshot(to(uri)).await.expect("a response");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    service.clone().oneshot(to("http://ada:secret@A.EXAMPLE/other")).await.expect("a response");
    assert_eq!(start.elapsed().as_secs(), 10);
    // Without an authority, the header counts.
    let mut request = to("/");
    request.headers_mut().insert("host", "a.example".parse().expect("a value"));
    service.clone().oneshot(request).await.expect("a response");
    assert_eq!(start.elapsed().as_secs(), 20);
}
