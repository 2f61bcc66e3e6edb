//! Requests that axum routes: what a layer gets, and what a handler has.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{any, get};
use futures::FutureExt;
use http::request::Parts;
use tower::ServiceExt;
use tower::util::MapRequestLayer;

/// The head as a layer got it.
#[derive(Clone)]
struct AtLayer(Parts);

/// The head as a handler got it, and the name of the handler.
#[derive(Clone)]
pub(super) struct AtHandler(pub(super) Parts, pub(super) &'static str);

/// A layer is around all routes; its handlers respond with the heads.
static ROUTER: LazyLock<Router> = LazyLock::new(|| {
    let by = |name: &'static str| {
        async move |request: Request| {
            let (mut parts, _) = request.into_parts();
            let mut response = Response::new(Body::empty());
            response
                .extensions_mut()
                .insert(parts.extensions.remove::<AtLayer>().expect("all requests pass the layer"));
            response.extensions_mut().insert(AtHandler(parts, name));
            response
        }
    };
    let user = || Router::new().route("/u/{id}", any(by("user"))).route("/f/{*id}", any(by("file")));
    let methods = get(by("GET")).post(by("POST")).put(by("PUT")).patch(by("PATCH")).delete(by("DELETE"));
    let router = user().route("/", methods.fallback(by("fallback"))).nest("/api", user()).nest("/o/{org}", user());
    let router = router.nest("/n/{id}", user()).fallback(any(by("none")));
    router.layer(MapRequestLayer::new(|request: Request| {
        let (parts, body) = request.into_parts();
        let mut request = Request::from_parts(parts.clone(), body);
        request.extensions_mut().insert(AtLayer(parts));
        request
    }))
});

/// What a layer of a router gets, with what the handler has as an extension.
pub(super) fn at_layer(request: http::Request<()>) -> Option<Parts> {
    let request = request.map(|()| Body::empty());
    let mut response = ROUTER.clone().oneshot(request).now_or_never().expect("an answer at once").expect("never fails");
    let handler = response.extensions_mut().remove::<AtHandler>()?;
    let AtLayer(mut parts) = response.extensions_mut().remove()?;
    parts.extensions.insert(handler);
    Some(parts)
}
