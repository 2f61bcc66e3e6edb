//! Flows of keys that a rule bans.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::{Ban, Limiter, Policy, Quota, RateLimitLayer, Rule, key};

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

#[tokio::test(start_paused = true)]
async fn a_ban_that_a_policy_gets_holds_for_flows_that_there_are() {
    let policy = || Policy::new("bytes", Quota::fixed_window(100, MINUTE)).key(key::peer_ip());
    let layer = RateLimitLayer::new(memory(), policy());
    let limiter = layer.clone().live().limiter().only(["bytes"]).expect("it is there");
    let flow = flow_of(&limiter).await;
    flow.check(1).await.expect("it is new");
    layer.clone().live().replace_policies([policy().ban(Ban::new(1, MINUTE, 5 * MINUTE))]).expect("memory bans");
    assert!(limiter.check_n(&ada(), 101).await.expect("memory decides").is_banned());
    let waits = timeout(4 * MINUTE, async {
        for _ in 0..100 {
            flow.acquire(1).await.expect("memory decides");
        }
    });
    assert!(waits.await.is_err(), "it waits for the end of the ban");
    assert!(flow.decision().expect("there was one").is_banned());
}
