//! The service: all layers in the order in which they belong, and why.

use std::num::NonZeroU32;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::request::Parts;
use http::{Method, StatusCode};
use tollgate::policy::Count;
use tollgate::response::exposed_headers;
use tollgate::store::Store;
use tollgate::{Key, Policy, Quota, RateLimitLayer, key};
use tollgate_shed::{Class, FleetShedLayer, WorkerShedLayer};
use tower::ServiceBuilder;
use tower_http::cors::{Any, CorsLayer};
use tower_http::trace::TraceLayer;

/// As many requests at once as one process can serve.
const AT_ONCE: NonZeroU32 = NonZeroU32::new(256).expect("it is not zero");

/// Returns the shedder for when this process has too much to do.
#[allow(dead_code, reason = "tests have one of their own")]
pub(crate) fn worker() -> WorkerShedLayer {
    WorkerShedLayer::new("worker", AT_ONCE)
}

/// The user that was authenticated.
#[derive(Clone)]
struct User(String);

pub(crate) fn app(store: impl Store + Clone, worker: WorkerShedLayer) -> Router {
    // What a layer inside refuses is refunded: whoever is shed, or has used up what a user may, is not charged here too.
    let address = Policy::new("address", Quota::per_second(50).burst(100)).key(key::client_ip()).count(Count::served());
    let address = RateLimitLayer::new(store.clone(), address);
    let worker = worker.classify(class);
    // It finds the class that the worker shedder has inserted.
    let fleet = FleetShedLayer::new(store.clone(), "fleet", Quota::concurrency(500), 0.2);

    Router::new()
        .route("/charges", post(async || "charged\n"))
        .route("/reports", get(async || "a report\n"))
        .layer(
            // The first is the outermost.
            ServiceBuilder::new()
                .layer(address) // refuses who sends far too much, before anything is done for them
                .layer(worker) // needs no store
                .layer(fleet) // one call to the store
                .layer(middleware::from_fn(authenticate)) // only for requests that are served
                .layer(user(store)), // needs the user
        )
        // Added after them: neither limited nor shed, as a process that sheds has to stay in service.
        .route("/healthz", get(async || "ok\n"))
        // Around all: refusals are traced too, and scripts may read their headers.
        .layer(CorsLayer::new().allow_origin(Any).expose_headers(exposed_headers()))
        .layer(TraceLayer::new_for_http())
}

/// The limits of users, of what is in progress, and of all requests: one decision, so that none is charged for another.
fn user(store: impl Store) -> RateLimitLayer {
    let by_user = || key::extension(|user: &User| Key::new("user", &user.0));
    RateLimitLayer::composite(store)
        .user(Quota::per_minute(600), by_user())
        .policy(Policy::new("in-progress", Quota::concurrency(10)).key(by_user()))
        .global(Quota::per_second(5_000))
}

/// Charges are what the service is for. No client can send anything that makes another request critical.
fn class(parts: &Parts) -> Class {
    match parts.uri.path() {
        "/charges" if parts.method == Method::POST => Class::Critical,
        _ if parts.headers.contains_key("x-test") => Class::Test,
        _ => Class::from_parts(parts),
    }
}

/// Finds the user, here by a token that is no secret. A real service verifies a token, or looks up a session.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(name) = token.map(str::to_owned) else { return StatusCode::UNAUTHORIZED.into_response() };
    request.extensions_mut().insert(User(name));
    next.run(request).await
}
