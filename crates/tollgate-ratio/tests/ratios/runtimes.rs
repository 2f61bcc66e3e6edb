//! Runtimes that end or have nobody to drive them, tallies that panic, and many threads at once.

use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tollgate::Quota;
use tollgate::store::{Ask, Change, Check, Store};
use tollgate_ratio::{MemoryTally, RatioStore};

use super::{all, counter, decide};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Sleeps until this is so, for 20 s at most; returns whether it is.
fn becomes(is_so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() && began.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(1));
    }
    is_so()
}

#[test]
fn a_store_can_be_closed_outside_of_its_runtime_and_after_it() {
    for is_over in [false, true] {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let within = runtime.enter();
        let tick = Duration::from_millis(100);
        let store = RatioStore::builder(MemoryTally::new()).tick(tick).build();
        drop(within);
        assert!(decide(&store, &[Check::new(all(), 1)]).is_allowed());
        assert!(becomes(|| store.live() == Some(1)), "it reports");
        let runtime = Some(runtime).filter(|_| !is_over);
        futures::executor::block_on(store.close());
        thread::sleep(3 * tick);
        assert_eq!(store.live(), None, "no report that was under way changes that");
        assert!(decide(&store, &[Check::new(all(), 1)]).is_allowed(), "its share is admitted");
        drop(runtime);
    }
}

#[test]
fn a_store_can_be_closed_in_a_runtime_without_timers() {
    let first = runtime();
    let store = first.block_on(async { RatioStore::new(MemoryTally::new()) });
    let without = Builder::new_current_thread().build().expect("a runtime");
    // The report fails there.
    without.block_on(store.close());
    assert!(decide(&store, &[Check::new(all(), 1)]).is_allowed());
}

#[test]
fn another_runtime_reports_where_the_first_is_not_driven() {
    let tally = MemoryTally::new();
    let tick = Duration::from_millis(100);
    let idle = runtime();
    let store = idle.block_on(async { RatioStore::builder(tally).tick(tick).build() });
    runtime().block_on(async {
        let began = Instant::now();
        while store.live().is_none() {
            assert!(began.elapsed() < Duration::from_secs(20), "it does not report");
            drop(decide(&store, &[Check::new(all(), 1)]));
            tokio::time::sleep(tick / 10).await;
        }
    });
}

#[test]
fn a_thousand_tasks_with_several_policies_in_any_order_never_wait_for_each_other() {
    let threads = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let settings = RatioStore::builder(MemoryTally::new()).tick(Duration::from_millis(100)).report(2).capacity(256);
    let store = settings.build();
    let work = async {
        let tasks = (0..1_000_usize).map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..50 {
                    let of = |policy: &str, key: usize| {
                        let counter = counter(policy, &(key % 300).to_string(), Quota::per_second(50));
                        Check::new(counter, (round % 3) as u64)
                    };
                    let mut checks = [of("a", task + round), of("b", task * round), of("a", task + round), of("c", 7)];
                    checks.rotate_left(round % 4);
                    drop(store.decide(&checks, Ask::default()));
                    if round % 10 == 9 {
                        drop(store.adjust(&checks[0].counter, Change::Reset));
                        let ratio = store.ratio(&checks[1].counter);
                        assert!(ratio.is_none_or(|ratio| (0.0..=1.0).contains(&ratio)));
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    tokio::task::yield_now().await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no task panics");
        }
    };
    threads.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await.expect("nobody waits") });
}
