//! Slots over time: renewed as long as they are held, and held no longer than they may be.

use std::time::Duration;

use http::StatusCode;
use tokio::time::sleep;
use tollgate::test_util::ManualClock;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};

use super::rig::{data, feeding, left, next, send, send_fed};

const LIFE: Duration = Duration::from_secs(4);

/// A layer whose store's clock is the paused time of the runtime.
fn streams(quota: Quota) -> RateLimitLayer {
    let store = MemoryStore::builder().clock(ManualClock::paused()).build();
    RateLimitLayer::new(store, Policy::new("streams", quota.slot_ttl(LIFE)))
}

#[tokio::test]
async fn a_stream_that_is_longer_than_three_lives_keeps_its_slot() {
    let layer = streams(Quota::concurrency(1));
    let (service, mut senders) = feeding(&layer);
    let (response, sender) = send_fed(&service, &mut senders);
    let mut body = Box::pin(response.into_body());
    for _ in 0..4 * LIFE.as_secs() * 5 {
        sender.unbounded_send(Ok(data("event"))).expect("it is read");
        assert!(matches!(next(&mut body), Some(Some(Ok(_)))));
        assert_eq!(send(&service).status(), StatusCode::TOO_MANY_REQUESTS);
        sleep(Duration::from_millis(200)).await;
    }
    drop(sender);
    assert!(matches!(next(&mut body), Some(None)));
    assert_eq!(left(&layer), 1);
    let _next = send_fed(&service, &mut senders);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_its_slot_no_longer_than_it_may() {
    let layer = streams(Quota::concurrency(1).max_hold(Duration::from_secs(20)));
    let (service, mut senders) = feeding(&layer);
    let (slow, _sender) = send_fed(&service, &mut senders);
    sleep(Duration::from_millis(19_900)).await;
    assert_eq!(left(&layer), 0);
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(left(&layer), 1, "the body is still there");

    let (_other, _sender) = send_fed(&service, &mut senders);
    drop(slow);
    assert_eq!(left(&layer), 0, "the slot of the other is not released");
    sleep(3 * LIFE).await;
    assert_eq!(left(&layer), 0, "nor does it expire");
}
