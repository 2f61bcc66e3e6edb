//! Each layer of the crate among those of tower and tower-http: they compile, and serve requests.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::middleware::ResponseAxumBodyLayer;
use axum::routing::get;
use axum_extra::middleware::option_layer;
use bytes::Bytes;
use futures::FutureExt;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tollgate::body::{BodyError, ResponseBody};
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule};
use tollgate_bandwidth::{BandwidthLayer, LimitedBody, OnLimit};
use tollgate_shed::{BackPressureLayer, FleetShedLayer, ShedBody, WorkerShedLayer};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

fn timeout() -> TimeoutLayer {
    TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(10))
}

fn cors() -> CorsLayer {
    CorsLayer::permissive()
}

fn zip() -> CompressionLayer {
    CompressionLayer::new()
}

fn routes() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// A service for requests with any body.
async fn hello<B>(_: Request<B>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello")))
}

fn preflight() -> http::request::Builder {
    Request::options("/").header(ORIGIN, "https://a.example").header(ACCESS_CONTROL_REQUEST_METHOD, "GET")
}

/// Sends a request to a router, and a preflight, which the layer for CORS responds to where there is one.
async fn serve(name: &str, router: Router) {
    let response = router.clone().oneshot(Request::new(Body::empty())).await.expect("it does not fail");
    assert_eq!(response.status(), 200, "{name}");
    assert_eq!(to_bytes(response.into_body(), 100).await.expect("a body"), "hello", "{name}");
    let response = router.oneshot(preflight().body(Body::empty()).expect("a request")).await.expect("it does not fail");
    if name.contains("cors") {
        assert_eq!(
            (response.status(), response.headers().contains_key("access-control-allow-origin")),
            (StatusCode::OK, true),
            "{name}"
        );
        assert!(to_bytes(response.into_body(), 100).await.expect("a body").is_empty(), "{name}");
    }
}

/// The same to a service without a router.
async fn serve_plain<S, B>(name: &str, service: S)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone,
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    for (request, expected) in [(Request::builder(), "hello"), (preflight(), "")] {
        let request = request.body(Full::default()).expect("a request");
        let response = service.clone().oneshot(request).await.expect("it does not fail");
        assert_eq!(response.status(), 200, "{name}");
        let body = response.into_body().collect().await.map_err(Into::into).expect("a body").to_bytes();
        assert_eq!(body, expected, "{name}");
    }
}

/// Serves requests through a layer, alone and at each place among others.
macro_rules! serve_among_others {
    ($layer:expr) => {{
        let (layer, name) = ($layer, stringify!($layer));
        let new = ServiceBuilder::new;
        for is_on in [true, false] {
            let some = Some(layer.clone()).filter(|_| is_on);
            serve(name, routes().layer(option_layer(some.clone()))).await;
            let stack = new().layer(cors()).layer(option_layer(some.clone()));
            serve(&format!("cors, {name}"), routes().layer(stack.clone())).await;
            serve_plain(name, stack.service(routes())).await;
            let of_tower = tower::util::option_layer(some.map(|layer| (ResponseAxumBodyLayer, layer)));
            serve(name, routes().layer(of_tower)).await;
        }
        serve(name, routes().layer(layer.clone())).await;
        serve(&format!("{name}, cors"), routes().layer(new().layer(layer.clone()).layer(cors()))).await;
        serve(&format!("cors, {name}"), routes().layer(new().layer(cors()).layer(layer.clone()))).await;
        let outside = new().layer(TraceLayer::new_for_http()).layer(cors()).layer(timeout()).layer(zip());
        serve(&format!("cors, {name}"), routes().layer(outside.clone().layer(layer.clone()))).await;
        let inside =
            new().layer(layer.clone()).layer(TraceLayer::new_for_http()).layer(cors()).layer(timeout()).layer(zip());
        serve(&format!("{name}, cors"), routes().layer(inside.clone())).await;
        serve_plain(name, outside.clone().layer(layer.clone()).service(service_fn(hello))).await;
        serve_plain(name, inside.service(service_fn(hello))).await;
        let both = outside.layer(layer.clone()).layer(cors()).layer(timeout()).layer(zip());
        serve_plain(name, both.service(service_fn(hello))).await;
    }};
}

#[tokio::test]
async fn a_rate_limit_composes() {
    let limit = RateLimitLayer::new(MemoryStore::new(), Policy::new("api", Quota::per_hour(100)));
    serve_among_others!(limit);
}

#[tokio::test]
async fn a_fleet_shedder_composes() {
    let fleet = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(500), 0.2);
    serve_among_others!(fleet);
}

#[tokio::test]
async fn a_worker_shedder_composes() {
    let worker = WorkerShedLayer::new("worker", NonZeroU32::new(256).expect("it is not zero"));
    serve_among_others!(worker);
}

#[tokio::test]
async fn layers_of_bandwidth_compose() {
    let limits = RateLimitLayer::new(MemoryStore::new(), Policy::new("bytes", Quota::per_hour(1_000_000)));
    serve_among_others!(BandwidthLayer::requests(limits.clone(), OnLimit::Throttle));
    serve_among_others!(BandwidthLayer::responses(limits, OnLimit::Throttle));
}

#[tokio::test]
async fn back_pressure_composes() {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("calls", Quota::per_hour(100))]);
    let back_pressure = BackPressureLayer::new(limiter, Key::new("job", "calls"));
    serve_among_others!(back_pressure);
}

#[tokio::test]
async fn layers_of_the_crate_compose_with_one_another() {
    let store = MemoryStore::new();
    let limit = RateLimitLayer::new(store.clone(), Policy::new("api", Quota::per_hour(100)));
    let worker = WorkerShedLayer::new("worker", NonZeroU32::new(256).expect("it is not zero"));
    let fleet = FleetShedLayer::new(store, "fleet", Quota::concurrency(500), 0.2);
    let bytes = RateLimitLayer::new(MemoryStore::new(), Policy::new("bytes", Quota::per_hour(1_000_000)));
    let bytes = BandwidthLayer::responses(bytes, OnLimit::Throttle);
    let all = ServiceBuilder::new().layer(cors()).layer(worker).layer(fleet).layer(limit).layer(bytes);
    serve("cors and all", routes().layer(all.clone())).await;
    serve_plain("all", all.service(service_fn(hello))).await;
}

/// A body that needs nothing of the one inside to be empty, and whose error is an error.
fn is_empty<B>(body: B)
where
    B: http_body::Body + Default,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    assert!(body.is_end_stream() && body.size_hint().exact() == Some(0));
    assert!(body.collect().now_or_never().expect("at once").is_ok_and(|body| body.to_bytes().is_empty()));
}

#[test]
fn bodies_are_empty_by_default_and_their_errors_are_errors() {
    is_empty(ResponseBody::<Full<Bytes>>::default());
    is_empty(ResponseBody::<hyper::body::Incoming>::default());
    is_empty(ResponseBody::<ResponseBody<Body>>::default());
    is_empty(LimitedBody::<Body>::default());
    is_empty(ShedBody::<Body>::default());
}

#[test]
fn bodies_are_sync_where_the_inner_body_is() {
    fn is_sync<T: Sync>() {}
    is_sync::<ResponseBody<Full<Bytes>>>();
    is_sync::<LimitedBody<Full<Bytes>>>();
    is_sync::<ShedBody<Full<Bytes>>>();
}

#[tokio::test]
async fn an_error_of_a_body_has_its_cause_however_many_layers_it_passes() {
    let broken =
        || Body::from_stream(futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("it broke")) }));
    let inner = service_fn(|_: Request<String>| std::future::ready(Ok::<_, Infallible>(Response::new(broken()))));
    let limit = |name| RateLimitLayer::new(MemoryStore::new(), Policy::new(name, Quota::per_hour(1)));
    let service = ServiceBuilder::new().layer(limit("outer")).layer(limit("inner")).service(inner);
    let response = service.oneshot(Request::new(String::new())).await.expect("it does not fail");
    let error: BodyError = response.into_body().collect().await.map(drop).expect_err("it broke");
    assert_eq!(error.to_string(), "it broke");
    let cause = std::error::Error::source(&error).expect("its cause");
    assert!(cause.is::<axum::Error>(), "{cause:?}");
}
