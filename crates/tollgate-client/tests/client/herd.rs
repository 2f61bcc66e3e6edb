//! Clients of our own server that are denied together, and when each of them tries again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::{Router, routing::get};
use futures::future::join_all;
use http::Response;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_client::RetryLayer;
use tower::util::BoxCloneService;
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt};

type Client = BoxCloneService<http::Request<&'static str>, Response<reqwest::Body>, BoxError>;

/// When the clients were denied, and when they tried again, from the first denial, in order.
pub(super) struct Attempts {
    pub(super) denied: Vec<Duration>,
    pub(super) again: Vec<Duration>,
}

/// Has one client take the only request of a window, and others retry once.
pub(super) async fn run(clients: u32, window: Duration, jitter: Duration) -> Attempts {
    let attempts: Arc<Mutex<HashMap<String, Vec<Instant>>>> = Arc::default();
    let seen = Arc::clone(&attempts);
    let note = from_fn(move |request: Request, next: Next| {
        seen.lock().expect("no panic").entry(request.uri().path().to_owned()).or_default().push(Instant::now());
        next.run(request)
    });
    let limits = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::token_bucket(1, window)));
    let app = Router::new().route("/{client}", get(|| async { "hello" })).layer(limits).layer(note);
    let app = app.route("/", get(|| async { "not limited" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let client = |_| {
        let service = ServiceBuilder::new()
            .map_response(Response::from)
            .filter(|request: http::Request<&'static str>| reqwest::Request::try_from(request))
            .service(reqwest::Client::new());
        BoxCloneService::new(RetryLayer::new().max_retries(1).jitter(jitter).layer(service))
    };
    let services: Vec<Client> = (0..clients).map(client).collect();
    let send = |service: &Client, path: &str| {
        let request = http::Request::get(format!("http://{address}/{path}")).body("").expect("a request");
        service.clone().oneshot(request)
    };
    // Each has its connection before.
    let connect = services.iter().map(|service| send(service, ""));
    assert!(join_all(connect).await.iter().all(Result::is_ok));
    send(&services[0], "first").await.expect("a response");
    let calls = services.iter().enumerate().map(|(client, service)| send(service, &client.to_string()));
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    server.abort();

    let attempts: Vec<_> =
        attempts.lock().expect("no panic").values().filter(|times| times.len() == 2).cloned().collect();
    let first = attempts.iter().map(|times| times[0]).min().expect("some are denied");
    let nth = |n: usize| {
        let mut times: Vec<_> = attempts.iter().map(|times| times[n] - first).collect();
        times.sort_unstable();
        times
    };
    Attempts { denied: nth(0), again: nth(1) }
}
