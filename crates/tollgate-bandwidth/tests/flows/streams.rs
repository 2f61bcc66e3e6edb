//! Streams and sinks whose items take units.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::channel::mpsc::{SendError, UnboundedSender};
use futures::{FutureExt, Sink, SinkExt, Stream, StreamExt, stream};
use tokio::time::Instant;
use tollgate::{OnFailure, Quota};
use tollgate_bandwidth::PacedError;

use super::audit::{failing, flow};

fn size(item: &&str) -> u64 {
    item.len() as u64
}

/// A stream that is a sink, too.
struct Duplex<S> {
    items: S,
    sender: UnboundedSender<&'static str>,
}

impl<S: Stream + Unpin> Stream for Duplex<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.items.poll_next_unpin(cx)
    }
}

impl<S: Unpin> Sink<&'static str> for Duplex<S> {
    type Error = SendError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.sender.poll_ready_unpin(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, item: &'static str) -> Result<(), SendError> {
        self.sender.start_send_unpin(item)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.sender.poll_flush_unpin(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.sender.poll_close_unpin(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_paced_and_yields_all_items_in_order() {
    let (flow, _, counts) = flow(Quota::per_second(100)).await;
    let items: Vec<u64> = (0..300).collect();
    let paced = flow.pace(stream::iter(items.clone()), |_: &u64| 1);
    assert_eq!(paced.size_hint(), (300, Some(300)));
    let start = Instant::now();
    let all: Vec<u64> = paced.map(|item| item.expect("memory decides")).collect().await;
    assert_eq!(all, items);
    let elapsed = start.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_millis(2_600)).contains(&elapsed), "{elapsed:?}");
    drop(flow);
    assert_eq!(counts.taken(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_stream_holds_one_item_and_drops_it_untaken() {
    let (flow, _, counts) = flow(Quota::per_second(10)).await;
    flow.acquire(10).await.expect("the burst");
    let mut polled = 0;
    let items = stream::iter(["first", "second"]).inspect(|_| polled += 1);
    let mut waiting = flow.pace(items, size);
    for _ in 0..5 {
        assert!(waiting.next().now_or_never().is_none());
    }
    assert_eq!(waiting.size_hint(), (2, Some(2)));
    drop(waiting);
    assert_eq!(polled, 1);
    drop(flow);
    assert_eq!(counts.taken(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_sink_is_paced_and_receives_all_items_in_order() {
    let (flow, _, counts) = flow(Quota::per_second(10)).await;
    let (sender, receiver) = futures::channel::mpsc::channel(1);
    let mut sink = flow.pace(sender, size);
    let all = tokio::spawn(receiver.collect::<Vec<_>>());
    let start = Instant::now();
    for item in ["four", "fives", "", "threes", "eight"] {
        sink.send(item).await.expect("memory decides");
    }
    sink.close().await.expect("it closes");
    assert!((Duration::from_secs(1)..Duration::from_millis(1_500)).contains(&start.elapsed()), "{:?}", start.elapsed());
    drop(sink);
    assert_eq!(all.await.expect("no panic"), ["four", "fives", "", "threes", "eight"]);
    drop(flow);
    assert_eq!(counts.taken(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_an_error_of_the_item() {
    let (store, flow, ..) = failing(Quota::per_second(10), OnFailure::Deny).await;
    store.fail();
    let mut items = flow.pace(stream::iter(["a long item", "x"]), size);
    assert!(items.next().await.expect("an item").expect_err("it fails").is_unavailable());
    let (sender, _receiver) = futures::channel::mpsc::unbounded();
    let error = flow.pace(sender, size).send("another long item").await.expect_err("it fails");
    assert!(matches!(error, PacedError::Flow(error) if error.is_unavailable()));
}

#[tokio::test(start_paused = true)]
async fn what_is_a_stream_and_a_sink_is_paced_in_both_directions() {
    let (flow, ..) = flow(Quota::per_second(10)).await;
    flow.acquire(10).await.expect("the burst");
    let (sender, mut sent) = futures::channel::mpsc::unbounded();
    let mut both = flow.pace(Duplex { items: stream::iter(["received"]), sender }, size);
    assert!(both.next().now_or_never().is_none());
    both.send("sent").await.expect("memory decides");
    assert_eq!(both.next().await.expect("an item").expect("memory decides"), "received");
    both.close().await.expect("it closes");
    assert_eq!((sent.next().await, sent.next().await), (Some("sent"), None));
}
