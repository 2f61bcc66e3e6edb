//! Policies that are replaced while they are used.

use std::thread;

use futures::FutureExt;
use futures::channel::oneshot;
use http::Response;
use tollgate::policy::Count;
use tollgate::{Key, Policy, Quota};
use tower::ServiceExt;

use crate::rig::{HOUR, Rig, Text, expect, get, hello, line, over, send, statuses};

const TWO: Quota = Quota::fixed_window(2, HOUR);
const FIVE: Quota = Quota::fixed_window(5, HOUR);

fn all(quota: Quota) -> Policy {
    Policy::new("all", quota)
}

#[test]
fn what_was_taken_stays_where_only_the_limit_changes_and_the_headers_follow() {
    let layer = Rig::new().layer([all(TWO)]);
    let (service, live) = (hello(&layer), layer.live());
    let replace = |policy| live.replace_policies([policy]).expect("it is valid");
    let three = || statuses(&service, [get(), get(), get()]);
    assert_eq!(three(), [200, 200, 429]);
    replace(all(FIVE));
    let response = send(&service, get());
    assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=5;w=3600"#);
    assert_eq!(line(&response, "ratelimit"), r#""all";r=2;t=3600"#);
    // Another name or window starts anew, and the old one goes on when it is back.
    for other in [Policy::new("other", TWO), all(Quota::fixed_window(2, HOUR * 2))] {
        replace(other);
        assert_eq!(three(), [200, 200, 429]);
    }
    replace(all(TWO));
    assert_eq!(three(), [429; 3]);
}

#[test]
fn clones_of_the_layer_its_services_and_its_limiter_follow() {
    let layer = Rig::new().layer([all(FIVE)]);
    let (before, clone, limiter) = (hello(&layer), layer.clone().live(), layer.clone().live().limiter());
    clone.replace_policies([all(TWO)]).expect("it is valid");
    let key = Key::new("global", "");
    let left = || limiter.check_n(&key, 0).now_or_never().unwrap().unwrap().outcomes()[0].remaining();
    assert_eq!(left(), 2);
    expect(&before, [(get(), 200)]);
    expect(&hello(&layer), [(get(), 200)]);
    assert_eq!(left(), 0);
    expect(&before, [(get(), 429)]);
    // A layer with one more policy is another layer.
    let more = layer.clone().policy(Policy::new("more", FIVE));
    clone.remove_policies();
    assert_eq!(send(&before, get()).headers().len(), 0);
    assert_eq!(line(&send(&hello(&more), get()), "ratelimit-policy"), r#""all";q=2;w=3600, "more";q=5;w=3600"#);
}

#[test]
fn a_request_under_way_ends_by_the_policies_it_began_with() {
    let layer = Rig::new().layer([all(FIVE).count(Count::failures())]);
    let (open, gate) = oneshot::channel::<()>();
    let gate = gate.shared();
    let service = over(&layer, move |_| {
        let gate = gate.clone();
        async move {
            gate.await.expect("the gate is opened");
            Response::new(Text::default())
        }
    });
    let mut under_way = Box::pin(service.oneshot(get()));
    assert!((&mut under_way).now_or_never().is_none());
    layer.live().replace_policies([Policy::new("other", TWO), Policy::new("another", TWO)]).expect("it is valid");
    open.send(()).expect("it is waited for");
    let response = under_way.now_or_never().expect("an answer at once").expect("it does not fail");
    assert_eq!(line(&response, "ratelimit"), r#""all";r=5;t=3600"#, "it is refunded, as its own policy says");
    assert_eq!(line(&response, "ratelimit-policy"), r#""all";q=5;w=3600"#);
}

#[test]
fn no_unit_is_lost_or_given_twice_while_policies_are_replaced() {
    let policy = || all(Quota::fixed_window(500, HOUR));
    let layer = Rig::new().layer([policy()]);
    let admitted: usize = thread::scope(|scope| {
        let senders = [(); 4].map(|()| {
            let service = hello(&layer);
            scope.spawn(move || (0..500).filter(|_| send(&service, get()).status() == 200).count())
        });
        let live = layer.clone().live();
        while senders.iter().any(|sender| !sender.is_finished()) {
            live.replace_policies([policy(), Policy::new("more", Quota::per_hour(5_000))]).expect("they are valid");
            live.replace_policies([policy()]).expect("it is valid");
        }
        senders.into_iter().map(|sender| sender.join().expect("it does not panic")).sum()
    });
    assert_eq!(admitted, 500);
}
