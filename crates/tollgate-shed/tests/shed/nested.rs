//! Shedders within shedders, and limits within them that are replaced under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures::FutureExt;
use http::Response;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use tollgate_shed::{Class, FleetShedLayer, Shed, WorkerShedLayer};
use tower::{Service as _, ServiceExt};

use super::rig::{Text, behind, hello, of_class, said, send};
use crate::slow;

const CLASSES: [Class; 4] = [Class::Critical, Class::Write, Class::Read, Class::Test];

/// How many slots of a shedder are taken, of all requests and of others.
fn taken(store: &MemoryStore, name: &str) -> [u64; 2] {
    super::rig::taken(store, name).now_or_never().expect("memory does not wait")
}

fn fleet(store: &MemoryStore, name: &str, slots: u64) -> FleetShedLayer {
    FleetShedLayer::new(store.clone(), name, Quota::concurrency(slots), 0.2)
}

/// Sends random requests, and ends random ones that are served, each of which has a slot of both shedders.
fn compare(names: [&str; 2], slots: [u64; 2], seed: u64) {
    let store = MemoryStore::new();
    let [outer, inner] = [0, 1].map(|at| fleet(&store, names[at], slots[at]));
    // The class is that of the outer one.
    let mut service = behind(&outer.classify(said), behind(&inner, hello()));
    // If they share their slots, the inner one is offered a request when the outer one has taken its slot.
    let shared = u64::from(names[0] == names[1]);
    let (mut rng, mut refusals) = (Rng::with_seed(seed), 0);
    let mut held: Vec<(Class, Response<Text>)> = Vec::new();
    let taken_by = |held: &[(Class, Response<Text>)]| {
        let others = held.iter().filter(|(class, _)| *class != Class::Critical).count();
        [held.len(), others].map(|requests| (1 + shared) * requests as u64)
    };
    for step in 0..slow::many([600, 6_000]) {
        if !held.is_empty() && rng.u8(..5) < 2 {
            held.swap_remove(rng.usize(..held.len()));
        }
        let class = CLASSES[rng.usize(..4)];
        let [all, others] = taken_by(&held);
        let is_full = |at: usize| {
            let own = shared * at as u64;
            all + own >= slots[at] || others + own >= slots[at] * 4 / 5
        };
        let refused = [0, 1].into_iter().find(|at| class != Class::Critical && is_full(*at));
        let response = send(&mut service, of_class(class));
        let by = response.extensions().get::<Shed>().map(|shed| (shed.name().to_owned(), shed.class()));
        assert_eq!(by, refused.map(|at| (names[at].to_owned(), class)), "seed {seed}, step {step}: {all}, {others}");
        if refused.is_some() {
            refusals += 1;
            // One of the inner shedder holds the slots of the outer one until then.
            drop(response);
        } else {
            held.push((class, response));
        }
        assert_eq!(names.map(|name| taken(&store, name)), [taken_by(&held); 2], "seed {seed}, step {step}");
        // Critical requests are never shed: too many of them leave nothing else to see.
        let critical = |(class, _): &(Class, _)| *class == Class::Critical;
        if held.iter().filter(|one| critical(one)).count() > 6 {
            held.swap_remove(held.iter().position(critical).expect("there is one"));
        }
    }
    assert!(refusals > 0, "{names:?}");
    drop(held);
    assert_eq!(names.map(|name| taken(&store, name)), [[0; 2]; 2], "seed {seed}");
}

#[test]
fn a_request_has_a_slot_of_each_shedder_around_it_and_one_that_is_shed_has_none() {
    for seed in slow::seeds([3, 10]) {
        compare(["outer", "inner"], [20, 10], seed);
        compare(["outer", "inner"], [10, 20], seed);
        compare(["same", "same"], [20, 20], seed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn limits_within_shedders_that_are_replaced_under_load_lose_no_slot() {
    let store = MemoryStore::new();
    let policies = |number: u64| {
        let quota = match number % 3 {
            0 => Quota::concurrency(3),
            1 => Quota::per_second(50),
            _ => Quota::concurrency(1_000),
        };
        [Policy::new("user", quota).key(key::global()), Policy::new("all", Quota::concurrency(50)).key(key::global())]
    };
    let limits = RateLimitLayer::composite(store.clone()).policies(policies(0));
    let worker = WorkerShedLayer::measured("worker", || 0.5);
    let service = behind(&limits, hello());
    let service = behind(&worker.classify(said), behind(&fleet(&store, "outer", 24), service));
    let stops = Arc::new(AtomicBool::new(false));
    let tasks = (0..16).map(|task| {
        let (mut service, stops, mut rng) = (service.clone(), Arc::clone(&stops), Rng::with_seed(task));
        tokio::spawn(async move {
            let (mut held, mut seen) = (Vec::new(), [0_u64; 3]);
            while !stops.load(Ordering::Relaxed) {
                let class = CLASSES[rng.usize(..4)];
                let answered = service.ready().await.expect("it never fails").call(of_class(class)).await;
                let response = answered.expect("it never fails");
                let is_shed = response.extensions().get::<Shed>().is_some();
                match response.status().as_u16() {
                    200 => seen[0] += 1,
                    429 => seen[1] += 1,
                    503 if is_shed && class != Class::Critical => seen[2] += 1,
                    status => panic!("{status} for {class:?}, shed: {is_shed}"),
                }
                held.push(response);
                held.truncate(rng.usize(..5));
                tokio::task::yield_now().await;
            }
            seen
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for number in 1..=400 {
        limits.clone().live().replace_policies(policies(number)).expect("they are valid");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    stops.store(true, Ordering::Relaxed);
    let mut seen = [0; 3];
    for task in tasks {
        let of_task = tokio::time::timeout(Duration::from_secs(20), task).await.expect("no task hangs");
        seen.iter_mut().zip(of_task.expect("no answer is odd")).for_each(|(all, more)| *all += more);
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    assert_eq!(taken(&store, "outer"), [0; 2], "{seen:?}");
    for name in ["user", "all"] {
        assert_eq!(taken(&store, name)[0], 0, "{name}");
    }
}
