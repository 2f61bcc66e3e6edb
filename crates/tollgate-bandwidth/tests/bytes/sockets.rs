//! Bodies of responses over sockets, by HTTP/1 and HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};

use super::rig::pattern;
use crate::soon::soon;

const MB: usize = 1_000_000;

/// Serves downloads of 10 MB, which are cut after 3 MB, until the runtime of the test ends.
async fn start() -> SocketAddr {
    let quota = Quota::fixed_window(3_000_000, Duration::from_secs(3_600));
    let limits = RateLimitLayer::new(MemoryStore::new(), Policy::new("downloads", quota));
    let (body, layer) = (pattern(10 * MB), BandwidthLayer::responses(limits, OnLimit::Abort));
    let app = Router::new().route("/", get(async move || body)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
    let address = listener.local_addr().expect("it has one");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Downloads until the body ends or fails; adds the size of what it reads to `read`.
async fn download(address: SocketAddr, is_http2: bool, read: &mut usize) -> Result<(), String> {
    let client = Client::builder(TokioExecutor::new()).http2_only(is_http2).build_http();
    let request = Request::get(format!("http://{address}/")).body(Empty::<Bytes>::new()).expect("valid");
    let response = client.request(request).await.map_err(|error| format!("{error:?}"))?;
    if response.status() != StatusCode::OK {
        return Err(response.status().to_string());
    }
    let (mut body, all) = (response.into_body(), pattern(10 * MB));
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|error| format!("{error:?}"))?.into_data().unwrap_or_default();
        assert_eq!(data, all[*read..*read + data.len()], "in order");
        *read += data.len();
    }
    assert_eq!(*read, all.len(), "a body that ends without an error is whole");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_download_ends_with_an_error_and_not_as_if_it_were_whole() {
    // HTTP/1 ends before its length, and HTTP/2 is reset.
    for (is_http2, expected) in [(false, "IncompleteBody"), (true, "Reset")] {
        let address = start().await;
        let mut read = 0;
        let error = soon(download(address, is_http2, &mut read)).await.expect_err("it is cut");
        assert!(error.contains(expected) && read <= 3_000_000, "{read}: {error}");
        let error = soon(download(address, is_http2, &mut read)).await.expect_err("nothing is left");
        assert_eq!(error, "429 Too Many Requests", "{is_http2}");
    }
}
