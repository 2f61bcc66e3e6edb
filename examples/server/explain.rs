//! `GET /explain?path=/login&method=POST`: what the policies make of such a request, as a table for operators.
//!
//! Which route matches is known only inside of the router. So a request with that method and path, and with the headers
//! of the one to `/explain`, goes through the limited routes. Just outside of the limiter it gets its response.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Query, Request};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use serde::Deserialize;
use tollgate::LiveLayer;
use tower::ServiceExt;

use crate::routes::is_local;

/// Marks requests that are explained and not served. Clients cannot send it.
#[derive(Clone, Copy)]
struct Explain;

/// Returns the limited routes, which explain marked requests, and the route that sends such requests.
pub(crate) fn around(limited: Router, layer: &LiveLayer) -> (Router, Option<MethodRouter>) {
    let layer = layer.clone();
    let limited = limited.layer(middleware::from_fn(move |request: Request, next: Next| {
        let layer = layer.clone();
        async move {
            if request.extensions().get::<Explain>().is_none() {
                return next.run(request).await;
            }
            layer.explain(&request.into_parts().0).to_string().into_response()
        }
    }));
    let routes = limited.clone();
    (limited, Some(get(move |target, request| explain(routes, target, request))))
}

#[derive(Deserialize)]
struct Target {
    path: String,
    #[serde(default = "get_by_default")]
    method: String,
}

fn get_by_default() -> String {
    Method::GET.to_string()
}

async fn explain(routes: Router, Query(target): Query<Target>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    if !is_local(&parts) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let path = target.path.parse::<Uri>().ok().filter(|_| target.path.starts_with('/'));
    let (Some(path), Ok(method)) = (path, target.method.parse::<Method>()) else {
        return (StatusCode::BAD_REQUEST, "give a path such as /login, and perhaps a method\n").into_response();
    };
    let mut marked = Request::new(Body::empty());
    (*marked.method_mut(), *marked.uri_mut(), *marked.headers_mut()) = (method, path, parts.headers);
    marked.extensions_mut().insert(Explain);
    if let Some(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>() {
        marked.extensions_mut().insert(*peer);
    }
    routes.oneshot(marked).await.into_response()
}
