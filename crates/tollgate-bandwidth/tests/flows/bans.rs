//! Flows of keys that a rule bans.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::{Ban, Limiter, Quota, Rule};

use super::audit::{Counts, ada, flow_of, limiter_of, memory};

const MINUTE: Duration = Duration::from_secs(60);

const WINDOW: Quota = Quota::fixed_window(100, MINUTE);
const BUCKET: Quota = Quota::per_minute(100);

/// A limiter of 100 units a minute, which bans after two refusals, and its counts.
fn limiter(quota: Quota) -> (Limiter, Arc<Counts>) {
    limiter_of(memory(), Rule::new("bytes", quota).ban(Ban::new(2, MINUTE, 5 * MINUTE)))
}

#[tokio::test(start_paused = true)]
async fn portions_that_are_refused_are_no_strikes() {
    let (limiter, _) = limiter(WINDOW);
    let flow = flow_of(&limiter).await;
    let mut refused = 0;
    for _ in 0..20 {
        sleep(Duration::from_secs(1)).await;
        refused += u32::from(flow.check(50).await.is_err());
    }
    assert!(refused >= 18, "{refused}");
    assert!(!flow.decision().expect("there was one").is_banned());
    assert!(!limiter.peek(&ada()).await.expect("memory decides").is_banned());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_leased_to_a_banned_key_whose_end_is_waited_for_with_a_call_every_five_seconds() {
    for quota in [WINDOW, BUCKET] {
        let (limiter, counts) = limiter(quota);
        let _ = limiter.check_n(&ada(), 100).await.expect("memory decides");
        for is_banned in [false, true] {
            assert_eq!(limiter.check(&ada()).await.expect("memory decides").is_banned(), is_banned);
        }
        // All units are there again.
        sleep(2 * MINUTE).await;
        let (flow, before) = (flow_of(&limiter).await, counts.calls());
        let error = flow.check(1).await.expect_err("the key is banned");
        assert!(error.is_denied() && flow.decision().expect("there was one").is_banned(), "{error}");
        assert_eq!(error.retry_after(), Some(3 * MINUTE), "{quota}");
        timeout(MINUTE, flow.acquire(1)).await.expect_err("the ban takes five");
        let calls = counts.calls() - before;
        assert!((5..=15).contains(&calls), "{calls} calls of {quota}");
        sleep(2 * MINUTE).await;
        flow.check(1).await.expect("the ban has ended");
    }
}
