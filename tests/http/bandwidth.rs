//! Bodies whose bytes are limited, over sockets, by HTTP/1 and HTTP/2.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use tollgate::store::Store;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};

use crate::support::soon::soon;

const MB: usize = 1_000_000;

/// Bytes that differ from place to place.
fn pattern(size: usize) -> Bytes {
    (0..size).map(|place| u8::try_from(place % 251).expect("small")).collect()
}

/// Serves HTTP/1 and HTTP/2 until it is dropped.
struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// An app of downloads of 10 MB and uploads, whose bytes this layer limits.
    async fn start(layer: BandwidthLayer) -> Self {
        let body = pattern(10 * MB);
        let app = Router::new()
            .route("/", get(async move || body))
            .route("/", post(|body: Bytes| async move { body.len().to_string() }))
            .layer(axum::extract::DefaultBodyLimit::disable())
            .layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback device");
        let address = listener.local_addr().expect("it has one");
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(app.clone());
                connections.spawn(async move {
                    drop(Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { address, task }
    }

    /// Downloads until the body ends or fails, or the time is over; adds what it reads to `read`.
    async fn download(&self, is_http2: bool, read: Arc<AtomicU64>) -> Result<(), String> {
        let request = Request::get(format!("http://{}/", self.address)).body(Empty::<Bytes>::new()).expect("valid");
        let response = client(is_http2).request(request).await.map_err(|error| format!("{error:?}"))?;
        if response.status() != StatusCode::OK {
            return Err(response.status().to_string());
        }
        let (mut body, all, mut place) = (response.into_body(), pattern(10 * MB), 0);
        while let Some(frame) = body.frame().await {
            let data = frame.map_err(|error| format!("{error:?}"))?.into_data().unwrap_or_default();
            assert_eq!(data, all[place..place + data.len()], "in order");
            place += data.len();
            read.fetch_add(data.len() as u64, Ordering::SeqCst);
        }
        assert_eq!(place, all.len(), "a body that ends without an error is whole");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn client(is_http2: bool) -> Client<HttpConnector, Empty<Bytes>> {
    Client::builder(TokioExecutor::new()).http2_only(is_http2).build_http()
}

fn downloads(store: impl Store, quota: Quota, over: OnLimit) -> BandwidthLayer {
    BandwidthLayer::responses(RateLimitLayer::new(store, Policy::new("downloads", quota)), over)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_download_ends_with_an_error_and_not_as_if_it_were_whole() {
    for is_http2 in [false, true] {
        let quota = Quota::fixed_window(3_000_000, Duration::from_secs(3_600));
        let server = Server::start(downloads(MemoryStore::new(), quota, OnLimit::Abort)).await;
        let read = Arc::<AtomicU64>::default();
        let error = soon(server.download(is_http2, Arc::clone(&read))).await.expect_err("it is cut");
        // HTTP/1 ends before its length, and HTTP/2 is reset.
        let expected = if is_http2 { "Reset" } else { "IncompleteBody" };
        assert!(error.contains(expected), "{error}");
        assert!(read.load(Ordering::SeqCst) <= 3_000_000);
        let error = soon(server.download(is_http2, read)).await.expect_err("nothing is left");
        assert_eq!(error, "429 Too Many Requests", "{is_http2}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_read_nothing_or_vanish_keep_no_others_waiting() {
    let quota = Quota::per_second(20_000_000);
    let server = Server::start(downloads(MemoryStore::new(), quota, OnLimit::Throttle)).await;
    let mut silent = Vec::new();
    for number in 0..20 {
        let mut stream = TcpStream::connect(server.address).await.expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it reads");
        if number % 2 == 0 {
            silent.push(stream);
        } else {
            let mut some = [0; 100];
            stream.read_exact(&mut some).await.expect("it responds");
        }
    }
    soon(server.download(false, Arc::default())).await.expect("others hold nothing for long");
    drop(silent);
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_on_one_redis_pass_no_more_than_one_quota_and_make_no_call_per_chunk() {
    const RATE: u64 = 4_000_000;
    let redis = crate::support::server::RedisServer::start();
    let store = async || {
        let store = tollgate::RedisStore::builder().timeout(Duration::from_secs(5)).connect(&redis.url()).await;
        store.expect("the server was started")
    };
    let start = Instant::now();
    let servers = [(); 2].map(|()| store());
    let servers = futures::future::join_all(servers)
        .await
        .into_iter()
        .map(async |store| Arc::new(Server::start(downloads(store, Quota::per_second(RATE), OnLimit::Throttle)).await));
    let servers = futures::future::join_all(servers).await;
    let read = Arc::<AtomicU64>::default();
    let mut all = JoinSet::new();
    for number in 0..8 {
        let (server, read) = (Arc::clone(&servers[number % 2]), Arc::clone(&read));
        all.spawn(async move { server.download(number % 4 == 0, read).await });
    }
    // On a busy machine it takes longer than two seconds until so much has passed.
    soon(async {
        while read.load(Ordering::SeqCst) < 3 * RATE {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let passed = read.load(Ordering::SeqCst);
    // Measured after, so it is no less than what had passed.
    let elapsed = start.elapsed();
    let most = RATE + u64::try_from(elapsed.as_micros()).expect("short") * 4;
    assert!(passed <= most, "{passed} of {most}");
    let (calls, chunks) = (redis.scripts(), passed / 16_384);
    println!("{passed} of {most} bytes in {elapsed:?}, {calls} calls, {chunks} chunks of 16 KiB");
    let most = 40 + u64::try_from(elapsed.as_millis()).expect("short") / 50;
    assert!(calls <= most && calls * 5 <= chunks, "{calls} calls for {chunks} chunks in {elapsed:?}");
    all.shutdown().await;
}
