//! The routes of the server.

use std::net::SocketAddr;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRequest, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, FORWARDED};
use axum::http::request::Parts;
use axum::routing::{get, get_service, post};
use axum::{Form, Json, Router};
use serde::Deserialize;
use tollgate::LiveLayer;
use tollgate_shed::FleetShedLayer;

use crate::explain;

const SLOWEST: Duration = Duration::from_secs(60);

pub(crate) fn app(layer: &LiveLayer, shedder: Option<FleetShedLayer>, explains: bool) -> Router {
    let limited = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/search", get(async || "found nothing\n"))
        .route("/login", post(login))
        .route("/slow", get(slow))
        .route("/status/{code}", get(status))
        .layer(layer.clone());
    let (limited, explain) = if explains { explain::around(limited, layer) } else { (limited, None) };
    let shedding = match shedder {
        Some(shedder) => limited.layer(shedder),
        None => limited,
    };
    let app = shedding
        // Added after the layers, so these are neither limited nor shed.
        .route("/healthz", get(async || "ok\n"))
        .route("/rate_limit", get_service(layer.status_service_for(is_local)));
    match explain {
        Some(explain) => app.route("/explain", explain),
        None => app,
    }
}

/// Returns whether a request comes from this machine and not through a proxy. Only such requests see the status
/// and explanations, as any client can send another user's API key.
pub(crate) fn is_local(parts: &Parts) -> bool {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let through_proxy = [FORWARDED.as_str(), "x-forwarded-for", "x-real-ip", "via"];
    peer.is_some_and(|ConnectInfo(peer)| peer.ip().to_canonical().is_loopback())
        && !through_proxy.iter().any(|name| parts.headers.contains_key(*name))
}

#[derive(Deserialize)]
struct Login {
    password: String,
}

async fn login(request: Request) -> (StatusCode, &'static str) {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let login = if kind.contains("json") {
        Json::<Login>::from_request(request, &()).await.ok().map(|Json(login)| login)
    } else {
        Form::<Login>::from_request(request, &()).await.ok().map(|Form(login)| login)
    };
    match login {
        Some(login) if login.password == "correct horse" => (StatusCode::OK, "welcome\n"),
        _ => (StatusCode::UNAUTHORIZED, "wrong password\n"),
    }
}

#[derive(Deserialize)]
struct Slow {
    ms: u64,
}

async fn slow(Query(Slow { ms }): Query<Slow>) -> Result<String, (StatusCode, String)> {
    let pause = Duration::from_millis(ms);
    if pause > SLOWEST {
        return Err((StatusCode::BAD_REQUEST, format!("ms is at most {}\n", SLOWEST.as_millis())));
    }
    tokio::time::sleep(pause).await;
    Ok(format!("waited {ms} ms\n"))
}

async fn status(Path(code): Path<u16>) -> Result<StatusCode, (StatusCode, &'static str)> {
    // 1xx is not a final status in HTTP.
    let status = StatusCode::from_u16(code).ok().filter(|status| !status.is_informational());
    status.ok_or((StatusCode::BAD_REQUEST, "a status is 200 to 999\n"))
}
