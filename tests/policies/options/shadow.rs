//! Policies that are tried on real traffic, which must not notice.

use std::convert::Infallible;

use http::{HeaderMap, Response};
use tollgate::key::{self, Extracted};
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Decision, OnFailure, Policy, Quota, RateLimitHeaders, RateLimitLayer};
use tower::ServiceExt;

use crate::rig::{HOUR, Rig, S, body, expect, from, get, hello, send, service, statuses, with};
use crate::support::doubles::unavailable;
use crate::support::time::at;

const FIVE: Quota = Quota::fixed_window(5, HOUR);
const TWO: Quota = Quota::fixed_window(2, HOUR);

fn tried() -> Policy {
    Policy::new("tried", TWO).shadow()
}

fn by_user(policy: Policy) -> Policy {
    policy.key(key::header("x-user").plain())
}

#[test]
fn it_decides_and_counts_and_never_refuses() {
    let rig = Rig::new();
    let shadow = rig.service([tried()]);
    for (left, allowed) in [(1, true), (0, true), (0, false), (0, false)] {
        let response = send(&shadow, get());
        assert_eq!(response.status(), 200);
        let told: &Decision = response.extensions().get().expect("a decision");
        assert!(told.is_allowed() && told.denied_by().next().is_none() && told.binding().is_none());
        let [outcome] = told.outcomes() else { panic!("one outcome was expected: {told:?}") };
        assert_eq!((outcome.remaining(), outcome.is_allowed()), (left, allowed));
        assert_eq!(rig.left_of_all("tried", TWO), left);
    }
    // A request that another policy refuses takes nothing from it.
    let both = rig.service([Policy::new("beside", FIVE).shadow(), Policy::new("one", Quota::per_hour(1))]);
    assert_eq!(statuses(&both, [get(), get(), get()]), [200, 429, 429]);
    assert_eq!(rig.left_of_all("beside", FIVE), 4);
}

/// Every answer to a trace of requests of three users on a moving clock, field by field.
fn answers(policies: Vec<Policy>) -> Vec<(u16, HeaderMap, String)> {
    let rig = Rig::new();
    let headers = RateLimitHeaders::both().reset_in_seconds().used().resource();
    let service = hello(&rig.layer(policies).headers(headers));
    let mut answers = Vec::new();
    for (step, user) in (0..40).zip(["ada", "bob", "ada", "eve", "bob", "ada", "ada"].into_iter().cycle()) {
        rig.clock.set(at(step * 97 * S));
        let response = send(&service, with("x-user", user));
        answers.push((response.status().as_u16(), response.headers().clone(), body(response)));
    }
    answers
}

#[test]
fn it_is_in_no_header_and_in_no_body() {
    let all = || Policy::new("all", Quota::token_bucket(20, HOUR));
    let user = || by_user(Policy::new("user", FIVE));
    let costly = by_user(Policy::new("tried-too", Quota::sliding_window(1, HOUR)).cost_by(|_| 3)).shadow();
    let queue = Policy::new("queue", Quota::leaky_bucket(1, HOUR).queue(3)).shadow();
    let refuses = by_user(Policy::new("refuses", FIVE)).deny(AccessList::default().key("bob")).shadow();
    let with = answers(vec![tried(), all(), costly, queue, user(), refuses]);
    let without = answers(vec![all(), user()]);
    assert!(without.iter().any(|(status, ..)| *status == 429), "the trace is refused at times");
    for (step, (with, without)) in with.iter().zip(&without).enumerate() {
        assert_eq!(with, without, "request {step}");
    }
    assert_eq!(send(&service(tried()), get()).headers(), &HeaderMap::new());
}

#[test]
fn whatever_refuses_a_request_refuses_none_in_shadow_mode() {
    let reject = || Extracted::Rejected(Box::new(Response::builder().status(401).body("".into()).expect("a response")));
    let listed = || by_user(Policy::new("listed", TWO)).deny(AccessList::parse(["10.0.0.0/8", "ada"]).expect("a list"));
    for (policy, request) in [
        (listed(), from("10.0.0.1")),
        (listed(), with("x-user", "ada")),
        (by_user(Policy::new("missing", TWO)).missing_key(MissingKey::Deny), get()),
        (Policy::new("rejects", TWO).key(key::from_fn(move |_| reject())), get()),
    ] {
        expect(&service(policy.shadow()), [(request, 200)]);
    }
    let later = key::lookup(key::global(), move |_| async move { Ok::<_, Infallible>(reject()) });
    let later = service(Policy::new("rejects-later", TWO).key(later).shadow()).oneshot(get());
    assert_eq!(tokio_test::block_on(later).expect("a response").status(), 200);
    // Nobody waits in its queue.
    let queue = Policy::new("queue", Quota::leaky_bucket(1, HOUR).queue(10)).shadow();
    expect(&service(queue), (0..20).map(|_| (get(), 200)));
    // What only it would have asked of a store that is away is no failure.
    let alone = RateLimitLayer::new(unavailable(), tried()).on_failure(OnFailure::Deny);
    expect(&hello(&alone), [(get(), 200)]);
    expect(&hello(&alone.policy(Policy::new("all", TWO))), [(get(), 503)]);
}
