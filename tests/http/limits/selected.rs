//! Which policies of a layer the operations of its limiter use for a key.

use std::time::Duration;

use http::{Method, Request, Response};
use tollgate::{
    Ban, Decision, Error, Key, Limiter, OnFailure, Outcome, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule, key,
};
use tollgate_bandwidth::Flow;
use tollgate_shed::BackPressureLayer;
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{self, everybody};

const HOUR: Duration = Duration::from_secs(3_600);
const FIFTY: Quota = Quota::per_hour(50);

fn user() -> Key {
    Key::hashed("header x-user", "ada")
}

fn by_user(name: &str) -> Policy {
    Policy::new(name, FIFTY).key(key::header("x-user"))
}

fn banning() -> Policy {
    by_user("bans").ban(Ban::new(2, HOUR, HOUR).of_verified_keys())
}

/// A policy for users, and policies that no job of a user meets.
fn layer() -> RateLimitLayer {
    rig::layer([
        by_user("user"),
        by_user("login").routes(["/login"]),
        by_user("write").methods([Method::POST]),
        by_user("when").when(|_| true),
        by_user("pair").key((key::header("x-user"), key::method())),
        by_user("closure").key(key::from_fn(|_| Key::hashed("header x-user", "ada"))),
        by_user("ip").key(key::client_ip()),
        by_user("all").key(key::global()),
    ])
}

fn limiter() -> Limiter {
    layer().live().limiter()
}

#[track_caller]
fn uses(decision: Result<Decision, Error>, expected: &[&str]) {
    let decision = decision.expect("a policy is for the key");
    assert_eq!(decision.outcomes().iter().map(Outcome::policy).collect::<Vec<_>>(), expected);
}

/// The error names the kind of the key, and what there is instead.
#[track_caller]
fn is_for_none<T>(result: Result<T, Error>, says: &[&str]) {
    let error = result.err().expect("no policy is for the key");
    for part in says {
        assert!(error.is_invalid() && error.to_string().contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_check_takes_from_the_policies_whose_requests_have_its_key_wherever_they_go() {
    let of_a_method = user().join(&Key::new("method", "GET"));
    let shared = ["user", "pair", "closure", "ip", "all"];
    for (key, expected) in [
        (user(), &["user"][..]),
        (Key::new("ip", "203.0.113.9"), &["ip"]),
        (everybody(), &["all"]),
        (of_a_method, &["pair"]),
        // The counter that requests without a key share.
        (Key::new("anonymous", ""), &shared),
    ] {
        uses(limiter().check(&key).await, expected);
    }
    for kind in ["anonymous", "unknown"] {
        is_for_none(limiter().check(&Key::new(kind, "203.0.113.5")).await, &[kind]);
    }
}

#[tokio::test(start_paused = true)]
async fn all_operations_use_the_same_policies_and_a_key_that_is_for_none_is_an_error() {
    let limiter = layer().policy(banning()).live().limiter();
    let [user, others] = [&user(), &Key::new("user", "ada")];
    let flow = async |key| {
        let flow = Flow::of(&limiter, key).await?;
        flow.check(1).await.map(|()| flow.decision().expect("there was one")).map_err(|error| panic!("{error}"))
    };
    let decided = async |key| {
        [
            limiter.check(key).await,
            limiter.check_n(key, 2).await,
            limiter.peek(key).await,
            limiter.until_ready(key, HOUR).await.map(|(decision, _)| decision),
            limiter.acquire(key).await.map(|(decision, _)| decision),
            flow(key).await,
        ]
    };
    let done = async |key| {
        [
            limiter.strike(key).await.map(|()| 1),
            limiter.lift_ban(key).await,
            limiter.refund(key, 1).await,
            limiter.reset(key).await,
        ]
    };
    decided(user).await.into_iter().for_each(|decision| uses(decision, &["user", "bans"]));
    let found = done(user).await.map(|found| found.expect("policies are for it"));
    assert_eq!(found, [1, 1, 2, 2]);
    let says = &["\"user\"", "header x-user", "ip", "closure", "only"];
    decided(others).await.into_iter().for_each(|decision| is_for_none(decision, says));
    done(others).await.into_iter().for_each(|found| is_for_none(found, says));
    is_for_none(BackPressureLayer::try_new(limiter.clone(), others.clone()), says);
    assert!(BackPressureLayer::try_new(limiter, everybody()).is_ok(), "it meets no ban");
}

#[tokio::test]
async fn policies_are_used_for_every_key_where_they_are_named() {
    let (job, live) = (Key::new("job", "7"), layer().live());
    let named = live.limiter().only(["closure", "login"]).expect("they are there");
    uses(named.check(&job).await, &["login", "closure"]);
    assert_eq!(named.reset(&job).await.expect("two counters"), 2);
    uses(limiter().on_failure(OnFailure::Deny).only(["ip"]).expect("it is there").check(&job).await, &["ip"]);
    is_for_none(limiter().only(["log-in"]), &["\"log-in\"", "\"login\""]);
    is_for_none(limiter().only([""; 0]), &["at least one"]);
    is_for_none(limiter().only(["log in"]), &["log in"]);
    // Names are those of the policies in force.
    live.replace_policies([by_user("user").routes(["/"])]).expect("it is valid");
    is_for_none(named.peek(&user()).await, &["\"closure\"", "\"user\""]);
    is_for_none(live.limiter().peek(&user()).await, &["some requests only"]);
    live.remove_policies();
    is_for_none(named.check(&user()).await, &["\"closure\""]);
    assert!(live.limiter().check(&user()).await.expect("nothing is limited").is_allowed());
    // Rules take any key.
    let rules = Limiter::new(tollgate::MemoryStore::new(), [by_user("ten").rule().clone(), Rule::new("more", FIFTY)]);
    uses(rules.check(&job).await, &["ten", "more"]);
    uses(rules.only(["more"]).expect("it is there").check(&job).await, &["more"]);
}

#[tokio::test]
async fn a_strike_or_the_end_of_a_ban_where_nothing_bans_is_an_error() {
    is_for_none(limiter().strike(&user()).await, &["has a ban"]);
    let live = rig::layer([by_user("user"), banning().routes(["/login"])]).live();
    is_for_none(live.limiter().lift_ban(&user()).await, &["has a ban", "\"bans\"", "only"]);
    let named = live.limiter().only(["bans"]).expect("it is there");
    assert_eq!(named.lift_ban(&user()).await.expect("it bans"), 0);
    named.strike(&user()).await.expect("it bans");
    assert_eq!(named.lift_ban(&user()).await.expect("it bans"), 1);
}

#[tokio::test]
async fn a_handler_s_check_by_a_key_of_another_kind_than_the_policy_s_is_an_error() {
    let service = service_fn(async |request: Request<String>| {
        let handle: &RateLimitHandle = request.extensions().get().expect("the layer inserts it");
        is_for_none(handle.check(&by_user("user"), &everybody()).await, &["\"user\"", "header x-user"]);
        for policy in [by_user("user"), Policy::new("more", FIFTY)] {
            assert!(handle.check(&policy, &user()).await.expect("it is of the kind").is_allowed());
        }
        Ok::<_, std::convert::Infallible>(Response::new(String::new()))
    });
    layer().layer(service).oneshot(rig::request()).await.expect("a response");
}

#[test]
fn a_policy_of_the_layer_makes_keys_with_the_settings_of_the_client() {
    let live = rig::layer([]).client(key::client_ip().v6_prefix(64)).ip(FIFTY).live();
    let ip = live.find_policy("ip").expect("it was added");
    assert_eq!(ip.key_of("2001:db8:0:1::9").expect("an address").as_str(), "ip:2001:db8:0:1::/64");
    assert!(live.find_policy("login").is_none());
}
