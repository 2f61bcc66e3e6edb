//! Which policies of a layer the operations of its limiter use for a key.

use std::time::Duration;

use futures::FutureExt;
use http::Method;
use tollgate::key;
use tollgate::{
    Ban, Decision, Error, Key, Limiter, MemoryStore, OnFailure, Outcome, Policy, Quota, RateLimitHandle,
    RateLimitLayer, Rule,
};
use tollgate_bandwidth::Flow;
use tollgate_shed::BackPressureLayer;
use tollgate_test::send;

use crate::rig::{self, everybody};

const HOUR: Duration = Duration::from_secs(3_600);
const TEN: Quota = Quota::fixed_window(10, HOUR);

/// The result of what does not wait.
#[track_caller]
fn now<T>(future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    future.now_or_never().expect("it does not wait")
}

fn user() -> Key {
    Key::hashed("header x-user", "ada")
}

fn by_user(name: &str, quota: Quota) -> Policy {
    Policy::new(name, quota).key(key::header("x-user"))
}

/// A quota for users, and policies that no job of a user meets.
fn layer() -> RateLimitLayer {
    rig::layer([])
        .policy(by_user("user", Quota::per_hour(100)))
        .policy(by_user("login", Quota::per_hour(5)).routes(["/login"]))
        .policy(by_user("write", Quota::per_hour(5)).methods([Method::POST]))
        .policy(by_user("when", Quota::per_hour(5)).when(|_| true))
        .policy(by_user("pair", Quota::per_hour(5)).key((key::header("x-user"), key::method())))
        .policy(Policy::new("closure", Quota::per_hour(5)).key(key::from_fn(|_| Key::hashed("header x-user", "ada"))))
        .policy(Policy::new("ip", Quota::per_hour(5)).key(key::client_ip()))
        .policy(Policy::new("all", Quota::per_hour(5)).key(key::global()))
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
    assert!(error.is_invalid(), "{error}");
    for part in says {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn a_job_takes_from_the_policies_whose_requests_have_its_key_wherever_they_go() {
    let limiter = layer().live().limiter();
    for _ in 0..100 {
        assert!(now(limiter.check(&user())).expect("a policy is for it").is_allowed());
    }
    assert!(!now(limiter.check(&user())).expect("a policy is for it").is_allowed());
    uses(now(limiter.check(&user())), &["user"]);
    uses(now(limiter.check(&Key::new("ip", "203.0.113.9"))), &["ip"]);
    uses(now(limiter.check(&everybody())), &["all"]);
    uses(now(limiter.check(&user().join(&Key::new("method", "GET")))), &["pair"]);
}

#[tokio::test(start_paused = true)]
async fn all_operations_use_the_same_policies_and_a_key_that_is_for_none_is_an_error() {
    let layer = layer().policy(by_user("bans", TEN).ban(Ban::new(2, HOUR, HOUR).of_verified_keys()));
    let (limiter, others) = (layer.clone().live().limiter(), Key::new("user", "ada"));
    uses(limiter.check(&user()).await, &["user", "bans"]);
    uses(limiter.check_n(&user(), 2).await, &["user", "bans"]);
    uses(limiter.peek(&user()).await, &["user", "bans"]);
    uses(limiter.until_ready(&user(), HOUR).await.map(|(decision, _)| decision), &["user", "bans"]);
    uses(limiter.acquire(&user()).await.map(|(decision, _)| decision), &["user", "bans"]);
    let flow = Flow::of(&limiter, &user()).await.expect("a flow");
    uses(
        flow.check(1).await.map(|()| flow.decision().expect("there was one")).map_err(|error| panic!("{error}")),
        &["user", "bans"],
    );
    drop(flow);
    limiter.strike(&user()).await.expect("a policy bans");
    assert_eq!(limiter.lift_ban(&user()).await.expect("a policy bans"), 1);
    assert_eq!(limiter.refund(&user(), 1).await.expect("two counters"), 2);
    assert_eq!(limiter.reset(&user()).await.expect("two counters"), 2);

    let says = &["\"user\"", "header x-user", "ip", "closure", "only"];
    let refused = [
        limiter.check(&others).await.err(),
        limiter.check_n(&others, 0).await.err(),
        limiter.peek(&others).await.err(),
        limiter.until_ready(&others, HOUR).await.err(),
        limiter.acquire(&others).await.err(),
        Flow::of(&limiter, &others).await.err(),
        limiter.strike(&others).await.err(),
        limiter.lift_ban(&others).await.err(),
        limiter.refund(&others, 1).await.err(),
        limiter.reset(&others).await.err(),
    ];
    for error in refused {
        is_for_none(error.map_or(Ok(()), Err), says);
    }
    is_for_none(BackPressureLayer::try_new(limiter, others), says);
    assert!(
        BackPressureLayer::try_new(layer.clone().live().limiter(), Key::new("ip", "203.0.113.9")).is_ok(),
        "it meets no ban"
    );
}

#[test]
fn policies_are_used_for_every_key_where_they_are_named() {
    let layer = layer();
    let job = Key::new("job", "7");
    let named = layer.clone().live().limiter().only(["closure", "login"]).expect("they are there");
    uses(now(named.check(&job)), &["login", "closure"]);
    uses(now(named.peek(&user())), &["login", "closure"]);
    assert_eq!(now(named.reset(&job)).expect("two counters"), 2);
    let limiter = || layer.clone().live().limiter();
    uses(now(limiter().on_failure(OnFailure::Deny).only(["ip"]).expect("it is there").check(&job)), &["ip"]);
    uses(now(limiter().only(["ip"]).expect("it is there").on_failure(OnFailure::Deny).check(&job)), &["ip"]);
    is_for_none(layer.clone().live().limiter().only(["log-in"]), &["\"log-in\"", "\"login\""]);
    is_for_none(layer.clone().live().limiter().only([""; 0]), &["at least one"]);
    assert!(layer.clone().live().limiter().only(["log in"]).is_err(), "it is no name");
}

#[test]
fn names_are_those_of_the_policies_in_force() {
    let layer = layer();
    let named = layer.clone().live().limiter().only(["login"]).expect("it is there");
    layer
        .clone()
        .live()
        .replace_policies([by_user("user", TEN), by_user("login", Quota::per_hour(7))])
        .expect("they are valid");
    assert_eq!(now(named.peek(&user())).unwrap().outcomes()[0].limit(), 7);
    uses(now(layer.clone().live().limiter().peek(&user())), &["user", "login"]);
    layer.clone().live().replace_policies([by_user("user", TEN).routes(["/"])]).expect("it is valid");
    is_for_none(now(named.peek(&user())), &["\"login\"", "\"user\""]);
    is_for_none(now(layer.clone().live().limiter().peek(&user())), &["some requests only"]);
    layer.clone().live().remove_policies();
    is_for_none(now(named.check(&user())), &["\"login\""]);
    assert!(now(layer.clone().live().limiter().check(&user())).expect("nothing is limited").is_allowed());
}

#[test]
fn rules_take_any_key_and_some_of_them_where_they_are_named() {
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("ten", TEN), Rule::new("more", TEN)]);
    uses(now(limiter.check(&Key::new("job", "7"))), &["ten", "more"]);
    let policy = by_user("login", TEN).routes(["/login"]);
    uses(now(Limiter::new(MemoryStore::new(), [policy.rule().clone()]).check(&Key::new("job", "7"))), &["login"]);
    uses(now(limiter.only(["more"]).expect("it is there").check(&Key::new("job", "7"))), &["more"]);
}

#[test]
fn a_strike_or_the_end_of_a_ban_where_nothing_bans_is_an_error() {
    let bans = by_user("login", TEN).routes(["/login"]).ban(Ban::new(2, HOUR, HOUR).of_verified_keys());
    let limiter = layer().live().limiter();
    is_for_none(now(limiter.strike(&user())), &["has a ban"]);
    let layer = RateLimitLayer::composite(MemoryStore::new()).policy(by_user("user", TEN)).policy(bans);
    is_for_none(now(layer.clone().live().limiter().lift_ban(&user())), &["has a ban", "\"login\"", "only"]);
    let named = layer.clone().live().limiter().only(["login"]).expect("it is there");
    assert_eq!(now(named.lift_ban(&user())).expect("it bans"), 0);
    now(named.strike(&user())).expect("it bans");
    assert_eq!(now(named.lift_ban(&user())).expect("it bans"), 1);
}

#[tokio::test]
async fn the_counter_that_requests_without_a_key_share_is_reset_by_its_key() {
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("ip", TEN).key(key::client_ip()));
    assert!(send(&layer, 1, |_| http::Request::new(String::new())).await[0].is_admitted());
    for key in ["anonymous:", "ambiguous:203.0.113.9", "unknown:"] {
        let found = layer
            .clone()
            .live()
            .limiter()
            .reset(&key.parse().expect("a key"))
            .await
            .expect("such keys are of any policy");
        assert_eq!(found, usize::from(key == "anonymous:"), "{key}");
    }
}

#[tokio::test]
async fn a_handler_s_check_by_a_key_of_another_kind_than_the_policy_s_is_an_error() {
    use http_body_util::Full;
    use tower::{Layer, ServiceExt, service_fn};
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("all", TEN));
    let service = layer.layer(service_fn(async |request: http::Request<String>| {
        let handle: &RateLimitHandle = request.extensions().get().expect("the layer inserts it");
        is_for_none(
            handle.check(&by_user("user", TEN), &Key::new("user", "ada")).await,
            &["\"user\"", "header x-user"],
        );
        for policy in [by_user("user", TEN), Policy::new("more", TEN)] {
            assert!(handle.check(&policy, &user()).await.expect("it is of the kind").is_allowed());
        }
        Ok::<_, std::convert::Infallible>(http::Response::new(Full::<bytes::Bytes>::default()))
    }));
    let _ = service.oneshot(http::Request::new(String::new())).await.expect("a response");
}

#[test]
fn a_kind_that_is_named_as_a_shared_counter_is_no_shared_counter() {
    let limiter = layer().live().limiter();
    for kind in ["anonymous", "unknown"] {
        is_for_none(now(limiter.check(&Key::new(kind, "203.0.113.5"))), &[kind]);
    }
    uses(now(limiter.check(&Key::new("anonymous", ""))), &["user", "pair", "closure", "ip", "all"]);
}

#[test]
fn a_policy_of_the_layer_makes_keys_with_the_settings_of_the_client() {
    let client = key::client_ip().v6_prefix(64);
    let layer = rig::layer([]).client(client).ip(TEN);
    let ip = layer.clone().live().find_policy("ip").expect("it was added");
    assert_eq!(ip.key_of("2001:db8:0:1::9").expect("an address").as_str(), "ip:2001:db8:0:1::/64");
    assert!(layer.clone().live().find_policy("login").is_none());
}
