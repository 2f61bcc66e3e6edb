//! Each layer of the crate among those of tower and tower-http: they compile, and serve requests.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::middleware::ResponseAxumBodyLayer;
use axum::routing::get;
use axum_extra::middleware::option_layer;
use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tollgate::body::{BodyError, ResponseBody};
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule};
use tollgate_bandwidth::{BandwidthLayer, LimitedBody, OnLimit};
use tollgate_shed::{BackPressureLayer, FleetShedLayer, ShedBody, WorkerShedLayer};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_http::compression::CompressionLayer;
use tower_http::cors::CorsLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use crate::rig::{Text, by};

/// Layers of others, of which the one for CORS is outermost.
fn others() -> (CorsLayer, TimeoutLayer, CompressionLayer) {
    let timeout = TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(10));
    (CorsLayer::permissive(), timeout, CompressionLayer::new())
}

fn routes() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// A service for requests with any body.
async fn hello<B>(_: Request<B>) -> Result<Response<Text>, Infallible> {
    Ok(Response::new(Text::from("hello")))
}

/// Sends a request to a service, which has a layer for CORS if its name says so.
async fn serve<S, B>(name: &str, service: S)
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible>,
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let response = service.oneshot(by(Method::GET)).await.expect("it does not fail");
    let is_cors = response.headers().contains_key("access-control-allow-origin");
    assert_eq!((response.status().as_u16(), is_cors), (200, name.contains("cors")), "{name}");
    let body = response.into_body().collect().await.map_err(Into::into).expect("a body").to_bytes();
    assert_eq!(body, "hello", "{name}");
}

fn limit(name: &str, limit: u64) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), Policy::new(name, Quota::per_hour(limit)))
}

#[tokio::test]
async fn a_rate_limit_composes() {
    let limit = limit("api", 100);
    for is_on in [true, false] {
        let some = Some(limit.clone()).filter(|_| is_on);
        serve("axum's option", routes().layer(option_layer(some.clone()))).await;
        serve(
            "tower's option",
            routes().layer(tower::util::option_layer(some.map(|layer| (ResponseAxumBodyLayer, layer)))),
        )
        .await;
    }
    serve("alone", routes().layer(limit.clone())).await;
    serve("inside of cors", routes().layer((TraceLayer::new_for_http(), others(), limit.clone()))).await;
    serve("around cors", routes().layer((limit.clone(), others()))).await;
    serve("between cors", (others(), limit.clone(), others()).layer(service_fn(hello))).await;
    serve("a service around cors", (limit, others()).layer(service_fn(hello))).await;
}

#[tokio::test]
async fn shedders_back_pressure_and_bandwidth_compose() {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("calls", Quota::per_hour(100))]);
    let [requests, responses] = [BandwidthLayer::requests, BandwidthLayer::responses]
        .map(|bandwidth| bandwidth(limit("bytes", 1_000_000), OnLimit::Throttle));
    let worker = WorkerShedLayer::new("worker", NonZeroU32::MAX);
    let fleet = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(500), 0.2);
    serve("an option", routes().layer(option_layer(Some(fleet.clone())))).await;
    serve("an option", routes().layer(option_layer(Some(worker.clone())))).await;
    serve("an option", routes().layer(option_layer(Some(responses.clone())))).await;
    let back_pressure = BackPressureLayer::new(limiter, Key::new("job", "calls"));
    let all = (others(), worker, fleet, limit("api", 100), responses, requests, back_pressure, others());
    serve("cors and all", routes().layer(all.clone())).await;
    serve("cors and all", all.layer(service_fn(hello))).await;
}

#[test]
fn bodies_are_empty_by_default_and_their_errors_are_errors() {
    fn is_empty<B: http_body::Body<Error: std::error::Error + Send + Sync + 'static> + Default>() {
        let body = B::default();
        assert!(body.is_end_stream() && body.size_hint().exact() == Some(0));
        assert!(body.collect().now_or_never().expect("at once").is_ok_and(|body| body.to_bytes().is_empty()));
    }
    is_empty::<ResponseBody<Text>>();
    is_empty::<ResponseBody<hyper::body::Incoming>>();
    is_empty::<ResponseBody<ResponseBody<Body>>>();
    is_empty::<LimitedBody<Body>>();
    is_empty::<ShedBody<Body>>();
}

#[test]
fn bodies_are_sync_where_the_inner_body_is() {
    fn is_sync<T: Sync>() {}
    is_sync::<(ResponseBody<Text>, LimitedBody<Text>, ShedBody<Text>)>();
}

#[tokio::test]
async fn an_error_of_a_body_has_its_cause_however_many_layers_it_passes() {
    let inner = service_fn(async |_: Request<String>| {
        let broken = futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("it broke"))]);
        Ok::<_, Infallible>(Response::new(Body::from_stream(broken)))
    });
    let service = (limit("outer", 1), limit("inner", 1)).layer(inner);
    let response = service.oneshot(by(Method::GET)).await.expect("it does not fail");
    let error: BodyError = response.into_body().collect().await.map(drop).expect_err("it broke");
    assert_eq!(error.to_string(), "it broke");
    let cause = std::error::Error::source(&error).expect("its cause");
    assert!(cause.is::<axum::Error>(), "{cause:?}");
}
