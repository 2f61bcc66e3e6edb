//! Streams that a closure opens.

use std::error::Error as _;
use std::future::ready;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tollgate::store::{Change, Receipt, ReceiptItem, Store};

use crate::stores::{FIFTY, settings, settle};
use crate::support::checks::counter;

/// No name server knows it.
const URL: &str = "redis://redis.invalid:4711";

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
    let taken = ReceiptItem::new(counter("ada", FIFTY), 1, 0);
    let receipt = Receipt::new(store.capabilities(&[]).unwrap().id.expect("it has counters of its own"), [taken]);
    let settling = tokio::spawn(settle(&store, receipt, Change::Refund(1)).wait());
    for (wait, dialed) in [(0, 1), (5, 1), (10, 2), (10, 2), (15, 3)] {
        tokio::time::advance(Duration::from_millis(wait)).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!((dials.load(Ordering::SeqCst), settling.is_finished()), (dialed, false));
    }
    settling.abort();
}
