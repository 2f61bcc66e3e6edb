//! Decisions over keys of several slots.

use std::time::Duration;

use tollgate::store::{Ask, BanCheck, Change, Check, Mode, Settlement, Store, StoreDecision};
use tollgate::{Ban, Outcome, RedisStore};

use super::rig::{Cluster, PATIENCE, check_of, quota, wait_for};

/// Three checks, each on another primary.
fn checks(cluster: &Cluster, limits: [u64; 3]) -> [Check; 3] {
    [0, 1, 2].map(|place| check_of("apart", &cluster.key_on(place), quota(limits[place])))
}

async fn decide(store: &RedisStore, checks: &[Check]) -> StoreDecision {
    store.decide(checks, Ask::default()).wait().await.expect("the Cluster is whole")
}

fn remaining(decided: &StoreDecision) -> Vec<u64> {
    decided.decision.outcomes().iter().map(Outcome::remaining).collect()
}

async fn left(store: &RedisStore, checks: &[Check]) -> Vec<u64> {
    let looks: Vec<Check> = checks.iter().map(|check| check.clone().cost(0)).collect();
    remaining(&decide(store, &looks).await)
}

#[tokio::test]
async fn a_decision_takes_from_all_slots_or_gives_back() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let checks = checks(&cluster, [9, 2, 5]);
    for taken in 1..=2 {
        let decided = decide(&store, &checks).await;
        assert!(decided.decision.is_allowed());
        assert_eq!(remaining(&decided), [9 - taken, 2 - taken, 5 - taken]);
    }
    for _ in 0..20 {
        let decided = decide(&store, &checks).await;
        assert!(!decided.decision.is_allowed());
        assert!(decided.receipt.items().is_empty());
        assert_eq!(remaining(&decided), [7, 0, 3], "as if nothing had been taken");
        let fits: Vec<bool> = decided.decision.outcomes().iter().map(Outcome::is_allowed).collect();
        assert_eq!(fits, [true, false, true]);
        assert_eq!(left(&store, &checks).await, [7, 0, 3], "it was given back");
    }
}

#[tokio::test]
async fn a_key_on_one_slot_is_banned_and_nothing_is_taken_from_the_others() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let ban = Ban::new(2, Duration::from_secs(3_600), Duration::from_secs(3_600));
    let mut checks = checks(&cluster, [9, 1, 5]);
    checks[1].ban = Some(Box::new(BanCheck::new(ban)));
    for request in 0..6 {
        let decision = decide(&store, &checks).await.decision;
        let banned: Vec<bool> = decision.outcomes().iter().map(Outcome::is_banned).collect();
        assert_eq!((decision.is_allowed(), banned), (request == 0, vec![false, request >= 2, false]), "{request}");
    }
    checks[1].ban = None;
    assert_eq!(left(&store, &checks).await, [8, 0, 4]);
}

#[tokio::test]
async fn a_receipt_gives_back_to_every_slot() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let checks = checks(&cluster, [9, 8, 7]).map(|check| check.cost(3));
    let decided = decide(&store, &checks).await;
    assert_eq!(left(&store, &checks).await, [6, 5, 4]);
    let changes = [Change::Refund(1), Change::Charge(1), Change::Refund(9)];
    let changes = [0, 1, 2].map(|check| Settlement::new(check, changes[check]));
    drop(store.settle(decided.receipt, &changes));
    assert_eq!(left(&store, &checks).await, [7, 4, 7]);
}

#[tokio::test]
async fn a_shadow_in_another_slot_refuses_nothing_and_is_given_back_with_the_rest() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let mut checks = checks(&cluster, [9, 1, 3]);
    checks[1].mode = Mode::Shadow;
    assert!(decide(&store, &checks).await.decision.is_allowed());
    let decided = decide(&store, &checks).await;
    assert!(decided.decision.is_allowed() && !decided.decision.outcomes()[1].is_allowed());
    assert_eq!(left(&store, &checks).await, [7, 0, 1]);
    drop(decide(&store, &checks).await);
    store.adjust(&checks[1].counter, Change::Reset).wait().await.unwrap();
    assert!(!decide(&store, &checks).await.decision.is_allowed());
    assert_eq!(left(&store, &checks).await, [6, 1, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_decisions_never_admit_more_than_any_limit() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let checks = checks(&cluster, [300, 40, 200]);
    let asked = (0..8).map(|_| {
        let (store, checks) = (store.clone(), checks.clone());
        tokio::spawn(async move {
            let mut allowed = 0;
            for _ in 0..40 {
                allowed += u64::from(decide(&store, &checks).await.decision.is_allowed());
            }
            allowed
        })
    });
    let asked: Vec<_> = asked.collect();
    let mut allowed = 0;
    for task in asked {
        allowed += task.await.unwrap();
    }
    assert_eq!(allowed, 40, "nothing else is short");
    assert_eq!(left(&store, &checks).await, [260, 0, 160], "all else was given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_caller_who_went_away_took_in_vain_is_given_back() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let checks = checks(&cluster, [9, 1, 9]);
    drop(decide(&store, &checks).await);
    for _ in 0..10 {
        let asked = tokio::time::timeout(Duration::from_micros(50), store.decide(&checks, Ask::default()).wait()).await;
        drop(asked);
    }
    let settled = || tokio::task::block_in_place(|| futures::executor::block_on(left(&store, &checks)) == [8, 0, 8]);
    wait_for("all is given back", settled);
}

#[tokio::test]
async fn a_part_that_fails_fails_the_decision_and_the_others_give_back() {
    let mut cluster = Cluster::start();
    let store = cluster.store(Duration::from_millis(300)).await;
    let checks = checks(&cluster, [9, 9, 9]);
    drop(decide(&store, &checks).await);
    cluster.nodes[1].kill();
    let error = store.decide(&checks, Ask::default()).wait().await.expect_err("a primary is away");
    assert!(error.is_connection() || error.is_timeout(), "{error:#}");
    for place in [0, 2] {
        assert_eq!(left(&store, &checks[place..=place]).await, [8]);
    }
}
