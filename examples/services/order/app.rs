//! The service: each kind of layer at its place. docs/order.md has the reasons.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum_extra::middleware::option_layer;
use http::StatusCode;
use http::header::AUTHORIZATION;
use tollgate::policy::{Count, MissingKey};
use tollgate::response::exposed_headers;
use tollgate::store::Store;
use tollgate::{Key, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceBuilder};
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

/// How long a handler may take.
const LONGEST: Duration = Duration::from_secs(10);

/// Adds the layers one by one. Each goes around those before it: the last is the outermost.
pub(crate) fn by_router(store: impl Store + Clone) -> Router {
    routes()
        .layer(user(store.clone()))
        .layer(middleware::from_fn(authenticate))
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, LONGEST))
        .layer(address(store))
        .layer(CompressionLayer::new())
        .layer(CorsLayer::new().allow_origin(Any).allow_headers([AUTHORIZATION]).expose_headers(exposed_headers()))
        .layer(TraceLayer::new_for_http())
}

/// Adds the same layers by a builder. The first is the outermost.
pub(crate) fn by_builder(store: impl Store + Clone) -> Router {
    routes().layer(
        ServiceBuilder::new()
            .layer(TraceLayer::new_for_http())
            .layer(CorsLayer::new().allow_origin(Any).allow_headers([AUTHORIZATION]).expose_headers(exposed_headers()))
            .layer(CompressionLayer::new())
            .layer(address(store.clone()))
            .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, LONGEST))
            .layer(middleware::from_fn(authenticate))
            .layer(user(store)),
    )
}

/// The limits by address, unless a setting switches them off.
pub(crate) fn by_setting(store: impl Store, limits: &str) -> Router {
    let limits = (limits != "off").then(|| address(store));
    routes().layer(ServiceBuilder::new().layer(TraceLayer::new_for_http()).layer(option_layer(limits)))
}

/// What not to do with policies for routes: around the router, none has matched yet, so `login` never applies.
pub(crate) fn around(store: impl Store) -> Router {
    Router::new().fallback_service(address(store).layer(routes()))
}

fn routes() -> Router {
    let api =
        Router::new().route("/login", post(login)).route("/report", get(async || "a line of a report\n".repeat(9)));
    Router::new().nest("/api", api)
}

/// The limits by address, as one decision.
fn address(store: impl Store) -> RateLimitLayer {
    let login = Policy::new("login", Quota::fixed_window(5, Duration::from_secs(900)))
        .key(key::client_ip())
        // The whole template: the prefix of the nested router is part of it.
        .routes(["/api/login"])
        .count(Count::failures());
    RateLimitLayer::composite(store)
        .policy(Policy::new("address", Quota::per_minute(30)).key(key::client_ip()))
        .policy(login)
}

/// The limit of each user, whom `authenticate` has found. A login has no user yet.
fn user(store: impl Store) -> RateLimitLayer {
    let by_user = key::extension(|user: &User| Key::new("user", &user.0));
    let user = Policy::new("user", Quota::per_minute(20)).key(by_user).missing_key(MissingKey::Skip);
    RateLimitLayer::new(store, user)
}

/// The user that was authenticated.
#[derive(Clone)]
struct User(String);

/// Finds the user, here by a token that is no secret. A real service verifies a token, or looks up a session.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    match token.map(str::to_owned) {
        Some(name) => drop(request.extensions_mut().insert(User(name))),
        None if request.uri().path() == "/api/login" => {}
        None => return StatusCode::UNAUTHORIZED.into_response(),
    }
    next.run(request).await
}

async fn login(password: String) -> StatusCode {
    if password == "correct horse" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
}
