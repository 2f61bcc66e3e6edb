//! The module against the token bucket of the memory store.

use std::time::Duration;

use tollgate::{MemoryStore, Quota};

use super::rig::{HOUR, decide, server, store};
use crate::support::checks::check;

const STEPS: u64 = 400;
const USERS: u64 = 6;

/// What a second's rounding and the time between two questions may make of a time.
const TOLERANCE: Duration = Duration::from_secs(3);

async fn compare(quota: Quota) {
    let server = server();
    let (cell, memory) = (store(&server).await, MemoryStore::new());
    let mut random = fastrand::Rng::with_seed(quota.limit());
    let mut refused = 0;
    for step in 0..STEPS {
        let user = format!("user {}", random.u64(..USERS));
        let most = if random.u8(..20) == 0 { quota.capacity() + 1 } else { quota.capacity().div_ceil(3) };
        let cost = random.u64(..=most);
        let asked = check(&user, quota, cost);
        let theirs = decide(&cell, asked.clone()).await.expect("the server answers");
        let ours = decide(&memory, asked).await.expect("memory answers");
        let (theirs, ours) = (&theirs.decision.outcomes()[0], &ours.decision.outcomes()[0]);
        let told = format!("step {step} of {quota}: {cost} for {user}: {theirs:?}, {ours:?}");
        assert_eq!(theirs.is_allowed(), ours.is_allowed(), "{told}");
        assert_eq!(theirs.remaining(), ours.remaining(), "{told}");
        assert_eq!(theirs.retry_after().is_some(), ours.retry_after().is_some(), "{told}");
        let waits = [theirs, ours].map(|outcome| outcome.retry_after().unwrap_or_default());
        assert!(waits[0].abs_diff(waits[1]) < TOLERANCE, "{told}");
        assert!(theirs.reset_after().abs_diff(ours.reset_after()) < TOLERANCE, "{told}");
        refused += u64::from(!ours.is_allowed());
    }
    assert!((STEPS / 20..STEPS).contains(&refused), "{refused} of {STEPS} were refused");
    server.assert_every_key_expires();
}

#[tokio::test]
async fn both_decide_alike_whatever_the_burst_and_the_window() {
    for quota in [
        Quota::token_bucket(30, HOUR * 24 * 30),
        Quota::token_bucket(24, HOUR * 24 * 30).burst(100),
        // The time between two units is no whole number.
        Quota::token_bucket(7, HOUR * 24 * 30).burst(23),
        Quota::token_bucket(3, Duration::from_secs((1 << 41) / 1_000)),
    ] {
        compare(quota).await;
    }
}
