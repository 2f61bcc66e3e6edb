//! Policies that are tried on real traffic, which must not notice.

use std::convert::Infallible;

use http::{HeaderMap, HeaderName, Response};
use tollgate::key::{self, Extracted};
use tollgate::policy::{AccessList, MissingKey};
use tollgate::{Decision, OnFailure, Policy, Quota, RateLimitHeaders, RateLimitLayer};

use super::rig::{HOUR, Rig, S, body, expect, from, get, hello, now, on_each_store, send, with};
use crate::support::doubles::unavailable;
use crate::support::time::at;

const FIVE: Quota = Quota::fixed_window(5, HOUR);
const TWO: Quota = Quota::fixed_window(2, HOUR);

fn tried() -> Policy {
    Policy::new("tried", TWO).shadow()
}

#[tokio::test]
async fn it_decides_and_counts_and_never_refuses() {
    on_each_store(async |rig| {
        let service = rig.service([tried()]);
        for (left, allowed) in [(1, true), (0, true), (0, false), (0, false)] {
            let response = send(&service, get()).await;
            assert_eq!(response.status(), 200, "{}", rig.name);
            let told: &Decision = response.extensions().get().expect("a decision");
            assert!(told.is_allowed() && told.denied_by().next().is_none() && told.binding().is_none());
            let [outcome] = told.outcomes() else { panic!("one outcome was expected: {told:?}") };
            assert_eq!((outcome.remaining(), outcome.is_allowed()), (left, allowed), "{}", rig.name);
            assert_eq!(rig.left_of_all("tried", TWO).await, left, "{}", rig.name);
        }
    })
    .await;
}

#[tokio::test]
async fn it_is_in_no_header_and_in_no_body() {
    on_each_store(async |rig| {
        let service = rig.service([tried(), Policy::new("all", FIVE)]);
        for status in [200, 200, 200, 200, 200, 429, 429] {
            let response = send(&service, get()).await;
            assert_eq!(response.status(), status);
            let headers = format!("{:?}", response.headers());
            assert!(!headers.contains("tried") && headers.contains("all"), "{}: {headers}", rig.name);
            let text = body(response);
            assert!(!text.contains("tried"), "{}: {text}", rig.name);
        }
    })
    .await;
    let alone = now(&Rig::memory().service([tried()]), get());
    assert_eq!(alone.headers(), &HeaderMap::new());
}

/// Every answer to a trace of requests of three users on a moving clock, field by field.
async fn answers(rig: &Rig, policies: Vec<Policy>) -> Vec<(u16, HeaderMap, String)> {
    let service = hello(&rig.layer(policies).headers(RateLimitHeaders::both().reset_in_seconds().used().resource()));
    let mut answers = Vec::new();
    for (step, user) in (0..40).zip(["ada", "bob", "ada", "eve", "bob", "ada", "ada"].into_iter().cycle()) {
        rig.clock.set(at(step * 97 * S));
        let response = send(&service, with("x-user", user)).await;
        answers.push((response.status().as_u16(), response.headers().clone(), body(response)));
    }
    answers
}

#[tokio::test]
async fn the_answers_are_the_same_with_and_without_it() {
    let enforced = || [Policy::new("all", Quota::token_bucket(20, HOUR)), user(Policy::new("user", FIVE))];
    let shadows = || {
        [
            tried(),
            user(Policy::new("user-too", Quota::sliding_window(1, HOUR)).cost_by(|_| 3)).shadow(),
            Policy::new("queue", Quota::leaky_bucket(1, HOUR).queue(3)).shadow(),
            user(Policy::new("refuses", FIVE)).deny(AccessList::default().key("bob")).shadow(),
        ]
    };
    on_each_store(async |rig| {
        let [all, user] = enforced();
        let [first, second, third, fourth] = shadows();
        let with = answers(&fresh(rig).await, vec![first, all, second, third, user, fourth]).await;
        let without = answers(&fresh(rig).await, enforced().into()).await;
        assert!(without.iter().any(|(status, ..)| *status == 429), "the trace is refused at times");
        for (step, (with, without)) in with.iter().zip(&without).enumerate() {
            let names = |headers: &HeaderMap| headers.keys().map(HeaderName::to_string).collect::<Vec<_>>();
            assert_eq!(names(&with.1), names(&without.1), "{}: request {step}", rig.name);
            assert_eq!(with, without, "{}: request {step}", rig.name);
        }
    })
    .await;
}

fn user(policy: Policy) -> Policy {
    policy.key(key::header("x-user").plain())
}

/// Another store of the same kind.
async fn fresh(rig: &Rig) -> Rig {
    if rig.name == "memory" { Rig::memory() } else { Rig::redis().await }
}

#[tokio::test]
async fn a_request_that_is_refused_by_another_policy_takes_nothing_from_it() {
    on_each_store(async |rig| {
        let service =
            rig.service([Policy::new("tried", FIVE).shadow(), Policy::new("one", Quota::fixed_window(1, HOUR))]);
        for status in [200, 429, 429] {
            assert_eq!(send(&service, get()).await.status(), status);
        }
        assert_eq!(rig.left_of_all("tried", FIVE).await, 4, "{}", rig.name);
    })
    .await;
}

#[test]
fn nobody_waits_in_its_queue() {
    let queue = Quota::leaky_bucket(1, HOUR).queue(10);
    let service = Rig::memory().service([Policy::new("queue", queue).shadow()]);
    for _ in 0..20 {
        expect(&service, get(), 200);
    }
}

#[test]
fn its_list_of_those_denied_refused_them() {
    let list = AccessList::parse(["10.0.0.0/8", "ada"]).unwrap();
    let service = Rig::memory().service([Policy::new("ip", TWO).key(key::header("x-user")).deny(list).shadow()]);
    expect(&service, from("10.0.0.1"), 200);
    expect(&service, with("x-user", "ada"), 200);
}

#[test]
fn a_request_without_its_key_was_refused() {
    let policy = Policy::new("user", TWO).key(key::header("x-user")).missing_key(MissingKey::Deny).shadow();
    expect(&Rig::memory().service([policy]), get(), 200);
}

#[tokio::test]
async fn a_request_its_key_rejects_was_refused_at_once_or_later() {
    let reject = || Extracted::Rejected(Box::new(Response::builder().status(401).body("".into()).expect("a response")));
    let at_once = Policy::new("user", TWO).key(key::from_fn(move |_| reject())).shadow();
    let later = Policy::new("user", TWO)
        .key(key::lookup(key::global(), move |_| async move { Ok::<_, Infallible>(reject()) }))
        .shadow();
    for policy in [at_once, later] {
        assert_eq!(send(&Rig::memory().service([policy]), get()).await.status(), 200);
    }
}

#[test]
fn a_store_that_is_away_refused_what_only_shadows_asked_about() {
    let alone = RateLimitLayer::new(unavailable(), tried()).on_failure(OnFailure::Deny);
    expect(&hello(&alone), get(), 200);
    expect(&hello(&alone.policy(Policy::new("all", TWO))), get(), 503);
}
