//! Clients of our own server that are all denied in one window, and when each of them tries again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::{Router, routing::get};
use futures::future::join_all;
use http::{Response, StatusCode};
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_client::RetryLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};

/// When each client was denied, and when it tried again, from the first denial.
pub(super) struct Attempts {
    pub(super) denied: Vec<Duration>,
    pub(super) again: Vec<Duration>,
}

/// Has clients use up a window, be denied in it, and retry once.
pub(super) async fn run(clients: u32, window: Duration, jitter: Duration) -> Attempts {
    let attempts: Arc<Mutex<HashMap<String, Vec<Instant>>>> = Arc::default();
    let seen = Arc::clone(&attempts);
    let note = from_fn(move |request: Request, next: Next| {
        seen.lock().expect("no panic").entry(request.uri().path().to_owned()).or_default().push(Instant::now());
        next.run(request)
    });
    let policy = Policy::new("window", Quota::fixed_window(clients.into(), window));
    let limits = RateLimitLayer::new(MemoryStore::new(), policy);
    let app = Router::new().route("/{client}", get(|| async { "hello" })).layer(limits).layer(note);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let services: Vec<_> = (0..clients)
        .map(|client| {
            let service = ServiceBuilder::new()
                .map_response(Response::from)
                .filter(|request: http::Request<&'static str>| reqwest::Request::try_from(request))
                .service(reqwest::Client::new());
            (format!("http://{address}/{client}"), service)
        })
        .collect();
    // Soon after a window has begun.
    let since = UNIX_EPOCH.elapsed().expect("it is after 1970").as_nanos() % window.as_nanos();
    let since = Duration::from_nanos(u64::try_from(since).expect("a window"));
    tokio::time::sleep(window.saturating_sub(since)).await;
    let request = |uri: &str| http::Request::get(uri).body("").expect("a request");
    let fill = services.iter().map(|(uri, service)| service.clone().oneshot(request(uri)));
    for response in join_all(fill).await {
        assert_eq!(response.expect("a response").status(), StatusCode::OK);
    }
    let layer = || RetryLayer::new().max_retries(1).jitter(jitter);
    let calls = services.into_iter().map(|(uri, service)| {
        let mut service = layer().layer(service);
        tokio::spawn(async move { service.ready().await?.call(request(&uri)).await.map(drop) })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.expect("no panic").expect("a response");
    }
    server.abort();
    let attempts: Vec<_> = attempts.lock().expect("no panic").values().cloned().collect();
    let retried = attempts.iter().filter(|times| times.len() == 3).count();
    assert_eq!((attempts.len(), retried), (clients as usize, clients as usize), "each is allowed, denied, and retries");
    let first = attempts.iter().map(|times| times[1]).min().expect("some");
    let nth = |n: usize| {
        let mut times: Vec<_> = attempts.iter().map(|times| times[n] - first).collect();
        times.sort_unstable();
        times
    };
    Attempts { denied: nth(1), again: nth(2) }
}
