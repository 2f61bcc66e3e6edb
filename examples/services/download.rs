//! Downloads at 2 MB/s for each client, from two servers that share the limit in Redis.
//!
//! `cargo run --release -p tollgate-services --example download -- redis://127.0.0.1:6379` starts both,
//! and downloads from them four times at once. What has passed is never more than the burst and what the quota has gained since the start:
//!
//! ```text
//!  1.00 s:  3.50 MB of  4.00 MB
//!  2.00 s:  5.50 MB of  6.00 MB
//!  3.00 s:  7.50 MB of  8.00 MB
//!  4.00 s:  9.50 MB of 10.00 MB
//!  5.00 s: 11.50 MB of 12.00 MB
//!  6.00 s: 13.50 MB of 14.01 MB
//!  7.00 s: 15.50 MB of 16.00 MB
//!  8.00 s: 17.50 MB of 18.00 MB
//!  9.00 s: 19.50 MB of 20.00 MB
//!  9.03 s: 20.00 MB of 20.06 MB
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::{Router, routing::get};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tollgate::{Policy, Quota, RateLimitLayer, RedisStore, key};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};

const MB: usize = 1_000_000;
const RATE: usize = 2 * MB;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Serves files of 5 MB.
async fn serve(redis: &str) -> Result<SocketAddr, Error> {
    let quota = Quota::per_second(RATE as u64);
    let downloads = Policy::new("downloads", quota).key(key::client_ip());
    let store = RedisStore::builder().prefix("example-download").connect(redis).await?;
    let layer = BandwidthLayer::responses(RateLimitLayer::new(store, downloads), OnLimit::Throttle);
    let file = Bytes::from(vec![b'a'; 5 * MB]);
    let app = Router::new().route("/", get(async move || file)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// Downloads a file, and adds what it reads to `passed`.
async fn download(address: SocketAddr, passed: Arc<AtomicUsize>) -> Result<(), Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut buffer = vec![0; 65_536];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            read => passed.fetch_add(read, Ordering::Relaxed),
        };
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let redis = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let servers = [serve(&redis).await?, serve(&redis).await?];
    let (start, passed) = (Instant::now(), Arc::<AtomicUsize>::default());
    let mut downloads = JoinSet::new();
    for number in 0..4 {
        downloads.spawn(download(servers[number % 2], Arc::clone(&passed)));
    }
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.tick().await;
    while !downloads.is_empty() {
        tokio::select! {
            _ = second.tick() => show(start, &passed),
            Some(result) = downloads.join_next() => result??,
        }
    }
    show(start, &passed);
    Ok(())
}

fn show(start: Instant, passed: &AtomicUsize) {
    let (passed, elapsed) = (passed.load(Ordering::Relaxed), start.elapsed());
    let most = RATE + RATE * usize::try_from(elapsed.as_millis()).unwrap_or(usize::MAX) / 1_000;
    let [passed, most] = [passed, most].map(|bytes| format!("{}.{:02}", bytes / MB, bytes % MB * 100 / MB));
    println!("{:5.2} s: {passed:>5} MB of {most:>5} MB", elapsed.as_secs_f64());
}
