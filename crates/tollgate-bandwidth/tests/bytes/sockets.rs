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
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};

use super::rig::pattern;
use crate::soon::soon;

const MB: usize = 1_000_000;

/// Serves downloads of 10 MB, whose bytes are limited, until the runtime of the test ends.
async fn start(quota: Quota, over: OnLimit) -> SocketAddr {
    let limits = RateLimitLayer::new(MemoryStore::new(), Policy::new("downloads", quota));
    let body = pattern(10 * MB);
    let app = Router::new().route("/", get(async move || body)).layer(BandwidthLayer::responses(limits, over));
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
        let address = start(Quota::fixed_window(3_000_000, Duration::from_secs(3_600)), OnLimit::Abort).await;
        let mut read = 0;
        let error = soon(download(address, is_http2, &mut read)).await.expect_err("it is cut");
        assert!(error.contains(expected) && read <= 3_000_000, "{read}: {error}");
        let error = soon(download(address, is_http2, &mut read)).await.expect_err("nothing is left");
        assert_eq!(error, "429 Too Many Requests", "{is_http2}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_read_nothing_or_vanish_keep_no_others_waiting() {
    let address = start(Quota::per_second(20_000_000), OnLimit::Throttle).await;
    let mut silent = Vec::new();
    for number in 0..20 {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it reads");
        if number % 2 == 0 {
            silent.push(stream);
        } else {
            let mut some = [0; 100];
            stream.read_exact(&mut some).await.expect("it responds");
        }
    }
    soon(download(address, false, &mut 0)).await.expect("others hold nothing for long");
    drop(silent);
}
