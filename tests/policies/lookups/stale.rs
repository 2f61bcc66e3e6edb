//! A result that has expired is better than none, while the fresh one is late; and a client that leaves loses none.

use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::{Instant, advance, sleep, timeout};
use tollgate::policy::UnknownTier;
use tollgate::{Ban, OnFailure, Policy, Quota};

use super::rig::{Directory, layer, limit, ms, send, status, tiered, with_token};
use crate::rig::HOUR;

const ONE: Quota = Quota::fixed_window(1, HOUR);
const NEW: Quota = Quota::fixed_window(300_000, HOUR);
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn an_expired_result_is_used_while_the_fresh_one_is_late() {
    // Long before a long timeout, too.
    for (late, is_used) in [(40, true), (70, true), (8, false)] {
        let directory = Directory::default();
        let layer = layer(tiered(directory.then(ms(late), Ok(NEW)).timeout(ms(1_000))));
        assert_eq!(limit(&layer, "ada").await, 200_000);
        advance(MINUTE).await;
        let (start, expected) = (Instant::now(), if is_used { 200_000 } else { 300_000 });
        assert_eq!([limit(&layer, "ada").await, limit(&layer, "ada").await], [expected; 2], "{late} ms");
        assert!(start.elapsed() <= ms(12), "one request waits for it: {:?}", start.elapsed());
        sleep(ms(late)).await;
        assert_eq!((limit(&layer, "ada").await, directory.asked()), (300_000, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_result_is_used_for_as_long_again_while_lookups_fail() {
    for (life, rows) in [
        (
            60_000,
            &[(0, 200_000, 1), (60_000, 200_000, 2), (900, 200_000, 2), (200, 200_000, 3), (59_000, 100_000, 4)][..],
        ),
        (200, &[(0, 200_000, 1), (250, 200_000, 2), (900, 100_000, 3)]),
    ] {
        let directory = Directory::default();
        let layer = layer(tiered(directory.then(ms(0), Err("the directory is away")).ttl(ms(life))));
        for (passes, expected, lookups) in rows {
            advance(ms(*passes)).await;
            assert_eq!(limit(&layer, "ada").await, *expected, "{life}: after {passes} ms");
            assert_eq!(directory.asked(), *lookups, "{life}: after {passes} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_result_is_used_where_no_lookup_may_start() {
    let directory = Directory::default();
    let layer = layer(tiered(directory.then(ms(20), Ok(NEW)).in_flight(1)));
    assert_eq!(limit(&layer, "ada").await, 200_000);
    advance(MINUTE).await;
    let (bob, ada) = tokio::join!(limit(&layer, "bob"), limit(&layer, "ada"));
    assert_eq!((bob, ada, directory.asked()), (300_000, 200_000, 2));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_left_does_not_lose_the_expired_result_of_all_others() {
    let layer = layer(tiered(Directory::default().then(ms(40), Err("the directory is away"))));
    assert_eq!(limit(&layer, "ada").await, 200_000);
    advance(MINUTE).await;
    {
        let mut left = pin!(send(&layer, with_token("ada")));
        assert!((&mut left).now_or_never().is_none());
        // Its thread is kept, or nobody polls it; then the client is gone.
        advance(ms(12)).await;
    }
    sleep(ms(1)).await;
    assert_eq!(limit(&layer, "ada").await, 200_000, "an expired result is used while the fresh one is late");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_limited_by_its_tier_and_by_its_key() {
    let small = Directory::default().tiers_by(|_| async {
        sleep(ms(40)).await;
        Ok(Some(ONE))
    });
    let by_key = Policy::new("account", ONE).key(Directory::default().accounts(ms(40)));
    for layer in [layer(tiered(small.on_unknown(UnknownTier::Skip))), layer(by_key).on_failure(OnFailure::Allow)] {
        let left = timeout(ms(15), send(&layer, with_token("ada"))).await;
        assert!(left.is_err(), "the client has left");
        sleep(ms(1)).await;
        let mut served = 0;
        for _ in 0..100 {
            served += usize::from(status(&layer, "ada").await == 200);
        }
        assert_eq!(served, 1, "24 ms later it was found: of 100 were served");
    }
}

#[tokio::test(start_paused = true)]
async fn a_banned_key_stays_banned_while_its_tier_is_unknown() {
    let directory = Directory::default();
    let asked = directory.clone();
    let lookup = directory.tiers_by(move |_| ready(if asked.asked() == 1 { Ok(Some(ONE)) } else { Err("away") }));
    let lookup = lookup.ttl(ms(1_000)).on_unknown(UnknownTier::Skip);
    let ban = Ban::new(1, HOUR, HOUR).of_verified_keys();
    let layer = layer(tiered(lookup).ban(ban));
    assert_eq!(status(&layer, "ada").await, 200);
    assert_eq!(status(&layer, "ada").await, 429, "it is banned");
    sleep(ms(10_000)).await;
    assert_eq!(status(&layer, "ada").await, 429, "it is banned, whatever its quota");
}
