//! An API that gives its responses in turn and writes down what it was sent, by tokio's time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::time::Instant;
use tollgate_client::RetryLayer;
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

/// A call: when it came, after the first one, with which headers and which body.
pub(super) type Call = (Duration, HeaderMap, String);
pub(super) type Service = BoxCloneService<Request<String>, Response<String>, Infallible>;

/// Responses in turn. After the last one, all are 200.
#[derive(Clone, Default)]
pub(super) struct Api {
    responses: Arc<Mutex<VecDeque<Response<String>>>>,
    calls: Arc<Mutex<Vec<(Instant, HeaderMap, String)>>>,
}

impl Api {
    pub(super) fn new(responses: impl IntoIterator<Item = Response<String>>) -> Self {
        Self { responses: Arc::new(Mutex::new(responses.into_iter().collect())), calls: Arc::default() }
    }

    pub(super) fn service(&self) -> Service {
        let api = self.clone();
        BoxCloneService::new(service_fn(move |request: Request<String>| {
            let (parts, body) = request.into_parts();
            api.calls.lock().expect("no panic").push((Instant::now(), parts.headers, body));
            let response = api.responses.lock().expect("no panic").pop_front();
            std::future::ready(Ok(response.unwrap_or_else(|| Response::new("done".to_owned()))))
        }))
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        let calls = self.calls.lock().expect("no panic").clone();
        let first = calls.first().map(|(at, ..)| *at);
        calls.into_iter().map(|(at, headers, body)| (at - first.expect("a call"), headers, body)).collect()
    }
}

pub(super) fn denial(status: u16, headers: &[(&str, &str)]) -> Response<String> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body("denied".to_owned()).expect("a response")
}

pub(super) fn get() -> Request<String> {
    Request::get("http://api.example/").body(String::new()).expect("a request")
}

pub(super) fn post() -> Request<String> {
    Request::builder()
        .method(Method::POST)
        .uri("http://api.example/orders")
        .body("one book".to_owned())
        .expect("a request")
}

/// A layer that waits as long as it is told, to the tick.
pub(super) fn exact() -> RetryLayer {
    RetryLayer::new().jitter(Duration::ZERO)
}

/// Sends a request, and returns the status of the response and the calls.
pub(super) async fn send(layer: &RetryLayer, api: &Api, request: Request<String>) -> (StatusCode, Vec<Call>) {
    let response = layer.layer(api.service()).oneshot(request).await.expect("it does not fail");
    (response.status(), api.calls())
}
