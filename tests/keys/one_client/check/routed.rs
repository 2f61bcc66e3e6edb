//! Requests that axum routes: what a layer gets, and what a handler has.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{any, get};
use futures::FutureExt;
use http::request::Parts;
use tower::ServiceExt;
use tower::util::MapRequestLayer;

/// The head as a layer got it.
#[derive(Clone)]
pub(crate) struct AtLayer(pub(crate) Parts);

/// The head as a handler got it, and the name of the handler.
#[derive(Clone)]
pub(crate) struct AtHandler(pub(crate) Parts, pub(crate) &'static str);

static ROUTER: LazyLock<Router> = LazyLock::new(|| {
    let answer = |parts: Parts| {
        let mut response = Response::default();
        response.extensions_mut().insert(AtLayer(parts));
        response
    };
    handlers(answer)
});

/// What a layer of a router gets, with what the handler has as an extension.
pub(crate) fn at_layer(request: http::Request<()>) -> Option<Parts> {
    let request = request.map(|()| axum::body::Body::empty());
    let mut response = ROUTER.clone().oneshot(request).now_or_never().expect("an answer at once").expect("never fails");
    response.extensions_mut().remove::<AtLayer>().map(|AtLayer(parts)| parts)
}

/// An application in which a layer can be put around all routes. Its handlers answer with what a function
/// makes of the head as a layer got it, which has the head as the handler got it as an extension.
pub(crate) fn handlers<F>(answer: F) -> Router
where
    F: Fn(Parts) -> Response + Clone + Send + Sync + 'static,
{
    let by = |name: &'static str| {
        let answer = answer.clone();
        move |request: Request| {
            let answer = answer.clone();
            async move {
                let (mut parts, _) = request.into_parts();
                let AtLayer(mut at_layer) = parts.extensions.remove().expect("all requests pass the layer");
                at_layer.extensions.insert(AtHandler(parts, name));
                answer(at_layer)
            }
        }
    };
    let user = || Router::new().route("/u/{id}", any(by("user"))).route("/f/{*id}", any(by("file")));
    let methods = get(by("GET")).post(by("POST")).put(by("PUT")).patch(by("PATCH")).delete(by("DELETE"));
    let router = user().route("/", methods.fallback(by("fallback"))).nest("/api", user()).nest("/o/{org}", user());
    let router = router.nest("/n/{id}", user()).fallback(any(by("none")));
    router.layer(MapRequestLayer::new(|mut request: Request| {
        let (parts, body) = request.into_parts();
        request = Request::from_parts(parts.clone(), body);
        request.extensions_mut().insert(AtLayer(parts));
        request
    }))
}
