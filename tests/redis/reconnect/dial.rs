//! Streams that a closure opens.

use std::error::Error as _;
use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tollgate::store::{Change, Receipt, ReceiptItem, RedisStoreBuilder, Settlement, Store};
use tollgate::{Quota, RedisStore};

use super::rig::{assert_keeps, assert_returns, kept, take};
use crate::support::checks::counter;
use crate::support::server::RedisServer;

/// No name server knows it.
const URL: &str = "redis://redis.invalid:4711";

fn settings() -> RedisStoreBuilder {
    RedisStore::builder().without_deny_cache()
}

#[tokio::test]
async fn every_stream_is_dialed_by_the_host_and_port_of_the_url() {
    let (server, dialed) = (RedisServer::start(), Arc::<Mutex<Vec<(String, u16)>>>::default());
    let (all, redis) = (Arc::clone(&dialed), server.port());
    let settings = settings().dial(move |host, port| {
        all.lock().expect("nobody panics here").push((host, port));
        TcpStream::connect(("127.0.0.1", redis))
    });
    let store = settings.connect(URL).await.expect("the closure knows the way");
    assert_returns(&store).await;
    let before = kept(&server);
    for _ in 0..3 {
        let _: i64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert_returns(&store).await;
    }
    assert_keeps(&server, before).await;
    let dialed = dialed.lock().expect("nobody panics here");
    let is_right = |(host, port): &(String, u16)| host == "redis.invalid" && *port == 4711;
    assert!(dialed.len() >= 4 && dialed.iter().all(is_right), "{dialed:?}");
}

#[tokio::test]
async fn an_error_of_the_closure_is_the_cause_of_an_error_of_the_connection() {
    let closed =
        |_, _| ready(Err::<TcpStream, _>(io::Error::new(io::ErrorKind::HostUnreachable, "the tunnel is shut")));
    let error = settings().dial(closed).connect(URL).await.expect_err("there is no way");
    assert!(error.is_connection(), "{error:#}");
    let (mut cause, mut found) = (error.source(), Vec::new());
    while let Some(error) = cause {
        found.extend(error.downcast_ref::<io::Error>().map(|error| (error.kind(), error.to_string())));
        cause = error.source();
    }
    assert_eq!(found, [(io::ErrorKind::HostUnreachable, "the tunnel is shut".to_owned())], "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn for_what_waits_to_be_settled_the_closure_is_called_again_after_a_pause() {
    let dials = Arc::<AtomicU32>::default();
    let count = Arc::clone(&dials);
    let settings = settings().dial(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        ready(Err::<TcpStream, _>(io::ErrorKind::ConnectionRefused.into()))
    });
    let store = settings.lazy().connect(URL).await.expect("the URL is one");
    let taken = ReceiptItem::new(counter("ada", Quota::per_hour(10)), 1, 0);
    let receipt = Receipt::new(store.capabilities(&[]).unwrap().id.expect("it has counters of its own"), [taken]);
    let settling = tokio::spawn(store.settle(receipt, &[Settlement::new(0, Change::Refund(1))]).wait());
    for (wait, dialed) in [(0, 1), (5, 1), (10, 2), (10, 2), (15, 3)] {
        tokio::time::advance(Duration::from_millis(wait)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((dials.load(Ordering::SeqCst), settling.is_finished()), (dialed, false));
    }
    settling.abort();
}

/// A stream that panics once.
struct Panics {
    stream: TcpStream,
    is_due: Arc<AtomicBool>,
}

impl AsyncRead for Panics {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        assert!(!self.is_due.swap(false, Ordering::SeqCst), "the stream fell over");
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Panics {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_panics_ends_its_connection_and_not_the_store() {
    let (server, is_due) = (RedisServer::start(), Arc::<AtomicBool>::default());
    let (port, due) = (server.port(), Arc::clone(&is_due));
    let settings = RedisStore::builder().dial(move |_, _| {
        let is_due = Arc::clone(&due);
        async move { Ok(Panics { stream: TcpStream::connect(("127.0.0.1", port)).await?, is_due }) }
    });
    let store = settings.connect(&server.url()).await.expect("the server was started");
    for _ in 0..3 {
        is_due.store(true, Ordering::SeqCst);
        // In its task, or in that of a caller.
        let asked = store.clone();
        let _ = tokio::spawn(async move { take(&asked).await.is_ok() }).await;
        assert_returns(&store).await;
    }
}
