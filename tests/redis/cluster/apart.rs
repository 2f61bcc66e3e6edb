//! Decisions over keys of several slots.

use std::time::Duration;

use tollgate::store::{Ask, BanCheck, Change, Check, Mode, Settlement, Store};
use tollgate::{Ban, Outcome, RedisStore};

use super::rig::{Cluster, add_slots, check_of, quota};
use crate::stores::{PATIENCE, admitted, all_remaining, decide, patient_store, wait_for};
use crate::support::server::RedisServer;

const HOUR: Duration = Duration::from_secs(3_600);

/// Three checks, each on another primary.
fn checks(cluster: &Cluster, limits: [u64; 3]) -> [Check; 3] {
    [0, 1, 2].map(|place| check_of("apart", &cluster.key_on(place), quota(limits[place])))
}

async fn left(store: &RedisStore, checks: &[Check]) -> Vec<u64> {
    let looks: Vec<Check> = checks.iter().map(|check| check.clone().cost(0)).collect();
    all_remaining(&decide(store, &looks).await.decision)
}

#[tokio::test]
async fn a_decision_takes_from_all_slots_or_gives_back() {
    let mut cluster = Cluster::start();
    let store = cluster.store(Duration::from_secs(2)).await;
    let checks = checks(&cluster, [9, 2, 5]);
    for taken in 1..=2 {
        let decided = decide(&store, &checks).await;
        assert!(decided.decision.is_allowed());
        assert_eq!(all_remaining(&decided.decision), [9 - taken, 2 - taken, 5 - taken]);
    }
    for _ in 0..20 {
        let decided = decide(&store, &checks).await;
        assert!(!decided.decision.is_allowed() && decided.receipt.items().is_empty());
        assert_eq!(all_remaining(&decided.decision), [7, 0, 3], "as if nothing had been taken");
        let fits: Vec<bool> = decided.decision.outcomes().iter().map(Outcome::is_allowed).collect();
        assert_eq!(fits, [true, false, true]);
        assert_eq!(left(&store, &checks).await, [7, 0, 3], "it was given back");
    }
    // In shadow the one in the middle refuses nothing.
    let mut shadow = checks.clone();
    shadow[1].mode = Mode::Shadow;
    let decided = decide(&store, &shadow).await;
    assert!(decided.decision.is_allowed() && !decided.decision.outcomes()[1].is_allowed());
    assert_eq!(left(&store, &checks).await, [6, 0, 2]);
    let changes = [Settlement::new(0, Change::Refund(9)), Settlement::new(2, Change::Charge(1))];
    drop(store.settle(decided.receipt, &changes));
    assert_eq!(left(&store, &checks).await, [7, 0, 1], "a receipt goes to every slot");
    // With a ban only this key is banned, and nothing is taken elsewhere.
    let mut banning = checks.clone();
    banning[1].ban = Some(Box::new(BanCheck::new(Ban::new(2, HOUR, HOUR))));
    for request in 1..6 {
        let decision = decide(&store, &banning).await.decision;
        let banned: Vec<bool> = decision.outcomes().iter().map(Outcome::is_banned).collect();
        assert_eq!((decision.is_allowed(), banned), (false, vec![false, request >= 2, false]), "{request}");
    }
    assert_eq!(left(&store, &checks).await, [7, 0, 1]);
    // A part that fails fails the decision, and the others give back.
    cluster.nodes[1].kill();
    let error = store.decide(&shadow, Ask::default()).wait().await.expect_err("a primary is away");
    assert!(error.is_connection() || error.is_timeout(), "{error:#}");
    for (place, left_there) in [(0, 7), (2, 1)] {
        assert_eq!(left(&store, &checks[place..=place]).await, [left_there]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_decisions_never_admit_more_than_any_limit() {
    let cluster = Cluster::start();
    let store = cluster.store(PATIENCE).await;
    let checks = checks(&cluster, [300, 40, 200]);
    assert_eq!(admitted(std::slice::from_ref(&store), &checks, 8, 40).await, 40, "nothing else is short");
    assert_eq!(left(&store, &checks).await, [260, 0, 160], "all else was given back");
}

#[tokio::test]
async fn a_store_for_one_server_on_a_cluster_decides_over_one_key_and_else_fails_with_the_cause() {
    let node = RedisServer::start_with_settings(&["--cluster-enabled", "yes"]);
    add_slots(&node, 0..16_384);
    wait_for("it is a Cluster", || node.ask::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    let store = patient_store(&node).await;
    let [ada, bob] = ["ada", "bob"].map(|key| check_of("apart", key, quota(9)));
    assert!(decide(&store, std::slice::from_ref(&ada)).await.decision.is_allowed());
    let error = store.decide(&[ada, bob], Ask::default()).wait().await.expect_err("they have different slots");
    assert!(format!("{error:#}").contains("slot"), "{error:#}");
}
