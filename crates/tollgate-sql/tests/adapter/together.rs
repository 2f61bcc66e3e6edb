//! Many at once: exact together, and in few transactions.

use std::time::Duration;

use futures::future::join_all;
use tokio::runtime::Builder;
use tollgate::store::{Ask, Change, MaybeFuture, Settlement, Store};
use tollgate::{Error, Quota};
use tollgate_sql::BackendStore;

use crate::support::check;
use crate::support::table::Next;
use crate::{Rig, runtime};

const HOURLY: Quota = Quota::fixed_window(1_000, Duration::from_secs(3_600));

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_over_one_key_share_transactions_and_all_stores_of_a_table_admit_the_limit_together() {
    for (stores, trip, limit) in [(1, Duration::from_millis(1), 1_000), (4, Duration::ZERO, 200)] {
        let table = Rig::new(trip).table;
        let stores: Vec<_> = (0..stores)
            .map(|_| BackendStore::builder(table.clone()).timeout(Duration::from_secs(20)).build())
            .collect();
        let calls = (0..1_500).map(|place| {
            let (store, one) = (stores[place % stores.len()].clone(), check("ada", Quota::per_hour(limit), 1));
            tokio::spawn(async move { store.decide(&[one], Ask::default()).wait().await })
        });
        // A store that meets others again and again gives up.
        let decided = join_all(calls).await.into_iter().map(|one| one.expect("no panic"));
        let allowed = decided.filter(|one| one.as_ref().is_ok_and(|one| one.decision.is_allowed()));
        assert_eq!(allowed.count() as u64, limit, "{} stores", stores.len());
        assert!(stores.len() > 1 || table.calls().0 < 100, "{:?}", table.calls());
    }
}

#[tokio::test(start_paused = true)]
async fn other_keys_do_not_wait_for_a_hanging_one() {
    let rig = Rig::new(Duration::from_millis(1));
    rig.table.next(Next::HangsToLoad);
    let (ada, bob) = (check("ada", HOURLY, 1), check("bob", HOURLY, 1));
    let (hangs, goes) = tokio::join!(rig.decide(std::slice::from_ref(&ada)), async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let start = tokio::time::Instant::now();
        assert!(rig.is_allowed(&bob).await);
        start.elapsed()
    });
    assert!(hangs.expect_err("it hangs").is_timeout());
    assert!(goes < Duration::from_millis(10), "{goes:?}");
    assert!(rig.is_allowed(&ada).await, "it works again");
}

/// Begins a decision over one unit of two, and leaves after this time; returns how many units are left.
async fn left_after(time: Duration) -> usize {
    let rig = Rig::new(Duration::from_millis(1));
    let two = check("ada", Quota::per_hour(2), 1);
    {
        let mut left = Box::pin(rig.decide(std::slice::from_ref(&two)));
        assert!(futures::poll!(left.as_mut()).is_pending());
        tokio::time::sleep(time).await;
    }
    let mut units = 0;
    while rig.is_allowed(&two).await {
        units += 1;
    }
    units
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_before_the_commit_takes_nothing() {
    assert_eq!(left_after(Duration::ZERO).await, 2, "it left at once");
    assert_eq!(left_after(Duration::from_micros(500)).await, 2, "it left while its state was loaded");
    assert_eq!(left_after(Duration::from_millis(3)).await, 1, "it left during the commit");
}

#[tokio::test(start_paused = true)]
async fn decisions_that_are_polled_once_and_kept_hold_up_nobody() {
    let rig = Rig::new(Duration::from_millis(1));
    let one = check("ada", HOURLY, 1);
    let mut kept: Vec<_> = (0..20).map(|_| Box::pin(rig.decide(std::slice::from_ref(&one)))).collect();
    for decision in &mut kept {
        assert!(futures::poll!(decision.as_mut()).is_pending());
    }
    let start = tokio::time::Instant::now();
    assert!(rig.is_allowed(&one).await);
    assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
    assert!(join_all(kept).await.iter().all(Result::is_ok));
}

/// The transaction of one key, and all that wait for it, end with the runtime in which it began.
#[test]
fn a_runtime_that_stops_keeps_no_key() {
    let rig = Rig::new(Duration::from_millis(5));
    let (other, mut ends) = (runtime(), 0);
    for round in 0..20 {
        let one = check(&format!("ada{round}"), HOURLY, 1);
        let stopped = runtime();
        let begin = || {
            let _entered = stopped.enter();
            rig.store.decide(std::slice::from_ref(&one), Ask::default())
        };
        let lost: Vec<_> = (0..10).map(|_| begin()).collect();
        std::thread::sleep(Duration::from_millis(1));
        stopped.shutdown_timeout(Duration::from_secs(10));
        let decided = other.block_on(join_all(lost.into_iter().map(MaybeFuture::wait)));
        ends += decided.into_iter().filter_map(Result::err).filter(Error::is_store).count();
        assert!(other.block_on(rig.is_allowed(&one)), "round {round}");
    }
    assert!(ends > 20, "{ends} of 200 transactions ended with their runtime");
}

#[test]
fn a_handler_that_settles_and_then_blocks_its_thread_holds_up_no_other_request() {
    let rig = Rig::new(Duration::from_millis(1));
    let threads = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let (runtime, one) = (threads.expect("a runtime"), check("ada", HOURLY, 1));
    let (store, check) = (rig.store.clone(), one.clone());
    let blocks = runtime.spawn(async move {
        let decided = store.decide(&[check], Ask::default()).wait().await.expect("a decision");
        drop(store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(1))]));
        std::thread::sleep(Duration::from_millis(150));
    });
    std::thread::sleep(Duration::from_millis(20));
    let start = std::time::Instant::now();
    assert!(runtime.block_on(rig.is_allowed(&one)));
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    runtime.block_on(blocks).expect("no panic");
}
