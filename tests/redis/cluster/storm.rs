//! Half of a slot moves, under load from three stores: nobody else fails, and every counter is exact.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::store::{Ask, BreakerState, Check, Store};
use tollgate::{Quota, RedisStore};

use super::moves::set_slot;
use super::rig::{Cluster, PATIENCE, check_of, id, quota};

const STORES: usize = 3;
/// Tasks of each kind over a store.
const TASKS: usize = 4;
/// Less than the slot is half moved for.
const BUDGET: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_millis(5);
/// How long they ask; the slot is half moved in between.
const SPAN: Duration = Duration::from_secs(4);
const WHOLE: Duration = Duration::from_millis(700);
const HALF: Duration = Duration::from_secs(2);
/// What is given back in the background has arrived after this time.
const SETTLED: Duration = Duration::from_secs(1);
/// No counter comes near it, and no unit returns during the test.
const AMPLE: Quota = quota(20_000);
/// Runs out: what is asked for with it is refused then, and given back elsewhere.
const SCARCE: Quota = quota(300);

/// Checks that are asked for together, by name, and whether they may fail while the slot is half moved: of a key in the
/// slot that moves, another on the same primary, and one on another primary.
fn kinds([moved, beside, far]: [&str; 3]) -> [(&'static str, Vec<Check>, bool); 5] {
    let ample = |policy, key| check_of(policy, key, AMPLE);
    [
        ("both halves", vec![ample("a", moved), ample("b", moved), ample("c", far)], true),
        ("the half that stays", vec![ample("b", moved)], false),
        ("the half that moved", vec![ample("a", moved)], false),
        ("another slot", vec![ample("d", beside)], false),
        ("two primaries", vec![ample("e", beside), check_of("f", far, SCARCE)], false),
    ]
}

/// What came of one kind over one store.
#[derive(Default)]
struct Counts {
    asked: u64,
    admitted: u64,
    failed: u64,
}

/// The slot goes to a primary that no store knows yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_half_of_a_slot_moves_no_others_fail_and_every_counter_is_exact() {
    let mut cluster = Cluster::start();
    let new = cluster.add();
    let (near, far) = (cluster.keys_on(0, 2), cluster.key_on(1));
    let (mut tasks, mut counting) = (Vec::new(), Vec::new());
    for _ in 0..STORES {
        let store = RedisStore::builder().timeout(BUDGET).without_deny_cache();
        let store = store.connect_cluster([cluster.nodes[2].url()]).await.expect("the Cluster was started");
        let watched = store.clone();
        counting.push(thread::spawn(move || count_opened(&watched)));
        for (place, (_, checks, _)) in kinds([&near[0], &near[1], &far]).into_iter().enumerate() {
            tasks.extend((0..TASKS).map(|_| (place, tokio::spawn(ask(store.clone(), checks.clone())))));
        }
    }
    tokio::task::block_in_place(|| move_in_halves(&cluster, &near[0], new));
    let mut counts: [Counts; 5] = Default::default();
    for (place, task) in tasks {
        let (one, all) = (task.await.expect("no task fails"), &mut counts[place]);
        (all.asked, all.admitted, all.failed) =
            (all.asked + one.asked, all.admitted + one.admitted, all.failed + one.failed);
    }
    let opened: u64 = counting.into_iter().map(|watch| watch.join().expect("watching does not fail")).sum();
    tokio::time::sleep(SETTLED).await;
    assert_eq!(opened, 0, "breakers opened");
    let mut admitted = BTreeMap::new();
    for ((kind, checks, may_fail), Counts { asked, admitted: more, failed }) in
        kinds([&near[0], &near[1], &far]).into_iter().zip(counts)
    {
        assert!((failed == 0 || may_fail) && asked >= 100 && failed < asked, "{kind}: {failed} of {asked} failed");
        for check in checks {
            admitted.entry(check.counter.policy().to_string()).or_insert((check, 0)).1 += more;
        }
    }
    let store = cluster.store(PATIENCE).await;
    for (policy, (check, admitted)) in admitted {
        let looked = store.decide(&[check.cost(0)], Ask::default()).wait().await.expect("the Cluster is whole");
        let outcome = &looked.decision.outcomes()[0];
        assert_eq!(outcome.limit() - outcome.remaining(), admitted, "what counter {policy} holds, and was admitted");
    }
}

/// Moves one of the keys of a slot, and the others later.
fn move_in_halves(cluster: &Cluster, key: &str, to: usize) {
    let (from, to, slot) = (&cluster.nodes[0], &cluster.nodes[to], &cluster.slot_of(key).to_string());
    thread::sleep(WHOLE);
    set_slot(to, slot, &["IMPORTING", &id(from)]);
    set_slot(from, slot, &["MIGRATING", &id(to)]);
    let migrate = |key: &str| {
        let _: String = from.ask(&["MIGRATE", "127.0.0.1", &to.port().to_string(), key, "0", "5000"]);
    };
    let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", slot, "9"]);
    let moved = keys.iter().find(|key| key.contains(":a:")).expect("it was counted");
    migrate(moved);
    thread::sleep(HALF);
    keys.iter().filter(|key| *key != moved).for_each(|key| migrate(key));
    set_slot(to, slot, &["NODE", &id(to)]);
    set_slot(from, slot, &["NODE", &id(to)]);
}

async fn ask(store: RedisStore, checks: Vec<Check>) -> Counts {
    let mut counts = Counts::default();
    let end = Instant::now() + SPAN;
    while Instant::now() < end {
        counts.asked += 1;
        match store.decide(&checks, Ask::default()).wait().await {
            Ok(decided) => counts.admitted += u64::from(decided.decision.is_allowed()),
            Err(_) => counts.failed += 1,
        }
        tokio::time::sleep(REST).await;
    }
    counts
}

/// How often the breaker of any primary opens.
fn count_opened(store: &RedisStore) -> u64 {
    let (mut opened, mut were_open, end) = (0, 0, Instant::now() + SPAN);
    while Instant::now() < end {
        let open = store.breakers().iter().filter(|(_, state)| *state == BreakerState::Open).count();
        opened += open.saturating_sub(were_open) as u64;
        were_open = open;
        thread::sleep(Duration::from_millis(1));
    }
    opened
}
