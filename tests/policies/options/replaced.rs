//! Policies that are replaced while they are used.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use futures::FutureExt;
use futures::channel::oneshot;
use http::{Request, Response};
use tollgate::policy::Count;
use tollgate::{Policy, Quota};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::{HOUR, Rig, Text, expect, get, hello, line, now, on_each_store, send, statuses};

const TWO: Quota = Quota::fixed_window(2, HOUR);
const FIVE: Quota = Quota::fixed_window(5, HOUR);

fn all(quota: Quota) -> Policy {
    Policy::new("all", quota)
}

#[tokio::test]
async fn what_was_taken_stays_where_only_the_limit_changes_and_the_headers_follow() {
    on_each_store(async |rig| {
        let layer = rig.layer([all(TWO)]);
        let service = hello(&layer);
        assert_eq!(statuses(&service, [get(), get(), get()]).await, [200, 200, 429], "{}", rig.name);
        layer.clone().live().replace_policies([all(FIVE)]).unwrap();
        let response = send(&service, get()).await;
        assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=5;w=3600"#, "{}", rig.name);
        assert_eq!(line(&response, "ratelimit"), r#""all";r=2;t=3600"#, "{}", rig.name);
        layer.clone().live().replace_policies([all(TWO)]).unwrap();
        assert_eq!(statuses(&service, [get()]).await, [429], "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn another_name_or_window_starts_anew_and_the_old_one_goes_on_when_it_is_back() {
    on_each_store(async |rig| {
        let layer = rig.layer([all(TWO)]);
        let service = hello(&layer);
        let sent = || [get(), get(), get()];
        assert_eq!(statuses(&service, sent()).await, [200, 200, 429], "{}", rig.name);
        layer.clone().live().replace_policies([Policy::new("other", TWO)]).unwrap();
        assert_eq!(statuses(&service, sent()).await, [200, 200, 429], "{}", rig.name);
        layer.clone().live().replace_policies([all(Quota::fixed_window(2, HOUR * 2))]).unwrap();
        assert_eq!(statuses(&service, sent()).await, [200, 200, 429], "{}", rig.name);
        layer.clone().live().replace_policies([all(TWO)]).unwrap();
        assert_eq!(statuses(&service, [get()]).await, [429], "{}", rig.name);
    })
    .await;
}

#[test]
fn policies_can_be_added_and_taken_away() {
    let layer = Rig::memory().layer([]);
    let service = hello(&layer);
    expect(&service, get(), 200);
    layer.clone().live().replace_policies([all(TWO), Policy::new("more", FIVE)]).unwrap();
    assert_eq!(line(&now(&service, get()), "ratelimit-policy"), r#""all";q=2;w=3600, "more";q=5;w=3600"#);
    layer.clone().live().remove_policies();
    assert_eq!(now(&service, get()).headers().len(), 0);
}

#[test]
fn clones_of_the_layer_its_services_and_its_limiter_follow() {
    let layer = Rig::memory().layer([all(FIVE)]);
    let (before, clone, limiter) = (hello(&layer), layer.clone().live(), layer.clone().live().limiter());
    clone.replace_policies([all(TWO)]).unwrap();
    let key = tollgate::Key::new("global", "");
    let left = || limiter.check_n(&key, 0).now_or_never().unwrap().unwrap().outcomes()[0].remaining();
    assert_eq!(left(), 2);
    expect(&before, get(), 200);
    expect(&hello(&layer), get(), 200);
    assert_eq!(left(), 0);
    expect(&before, get(), 429);
}

#[test]
fn a_layer_with_one_more_policy_is_another_layer() {
    let layer = Rig::memory().layer([all(TWO)]);
    let more = layer.clone().policy(Policy::new("more", FIVE));
    layer.clone().live().remove_policies();
    assert_eq!(now(&hello(&layer), get()).headers().len(), 0);
    assert_eq!(line(&now(&hello(&more), get()), "ratelimit-policy"), r#""all";q=2;w=3600, "more";q=5;w=3600"#);
}

#[test]
fn a_request_under_way_ends_by_the_policies_it_began_with() {
    let rig = Rig::memory();
    let layer = rig.layer([all(FIVE).count(Count::failures())]);
    let (open, gate) = oneshot::channel::<()>();
    let gate = gate.shared();
    let service = layer.layer(service_fn(move |_: Request<Text>| {
        let gate = gate.clone();
        async move {
            gate.await.expect("the gate is opened");
            Ok::<_, Infallible>(Response::new(Text::default()))
        }
    }));
    let mut under_way = Box::pin(service.oneshot(get()));
    assert!((&mut under_way).now_or_never().is_none());
    layer.clone().live().replace_policies([Policy::new("other", TWO), Policy::new("another", TWO)]).unwrap();
    open.send(()).unwrap();
    let response = under_way.now_or_never().expect("an answer at once").unwrap();
    assert_eq!(line(&response, "ratelimit"), r#""all";r=5;t=3600"#, "it is refunded, as its own policy says");
    assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=5;w=3600"#);
}

#[test]
fn no_unit_is_lost_or_given_twice_while_policies_are_replaced() {
    let layer = Rig::memory().layer([all(Quota::fixed_window(500, HOUR))]);
    let (admitted, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let service = hello(&layer);
                let admitted = &admitted;
                scope.spawn(move || {
                    for _ in 0..500 {
                        if now(&service, get()).status() == 200 {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                layer
                    .clone()
                    .live()
                    .replace_policies([
                        all(Quota::fixed_window(500, HOUR)),
                        Policy::new("more", Quota::per_hour(5_000)),
                    ])
                    .unwrap();
                layer.clone().live().replace_policies([all(Quota::fixed_window(500, HOUR))]).unwrap();
            }
        });
        for sender in senders {
            sender.join().expect("it does not panic");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(admitted.into_inner(), 500);
}
