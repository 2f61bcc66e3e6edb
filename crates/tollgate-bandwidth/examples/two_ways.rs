//! The two ways of a layer of bandwidth, without sockets: bodies that wait for their bytes, and bodies that are cut.

use std::error::Error;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::routing::get;
use axum::{Router, http::Request};
use http_body_util::BodyExt;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};
use tower::ServiceExt;

/// An app of downloads of 30 kB, limited by user.
fn app(quota: Quota, over: OnLimit) -> Router {
    let bytes = Policy::new("bytes", quota).key(key::header("x-user"));
    let limits = RateLimitLayer::new(MemoryStore::new(), bytes);
    Router::new()
        .route("/", get(|| async { Body::from(vec![0; 30_000]) }))
        .layer(BandwidthLayer::responses(limits, over))
}

/// Downloads once, and prints what became of it.
async fn download(app: &Router, user: &str) -> Result<(), Box<dyn Error>> {
    let (start, mut bytes) = (Instant::now(), 0);
    let request = Request::get("/").header("x-user", user).body(Body::empty())?;
    let response = app.clone().oneshot(request).await?;
    if let Some(wait) = response.headers().get("retry-after") {
        println!("{user}: {}, retry after {} s", response.status(), wait.to_str()?);
        return Ok(());
    }
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes += frame.into_data().map_or(0, |data| data.len()),
            Err(error) => {
                println!("{user}: cut after {bytes} bytes: {error}");
                return Ok(());
            }
        }
    }
    println!("{user}: {bytes} bytes in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let paced = app(Quota::per_second(20_000), OnLimit::Throttle);
    let (ada, again, bob) = tokio::join!(download(&paced, "ada"), download(&paced, "ada"), download(&paced, "bob"));
    ada.and(again).and(bob)?;

    let cut = app(Quota::fixed_window(50_000, Duration::from_secs(3_600)), OnLimit::Abort);
    for _ in 0..3 {
        download(&cut, "ada").await?;
    }
    Ok(())
}
