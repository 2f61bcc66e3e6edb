//! Policies that would limit nothing, or refuse everything: each is an error when the layer is built.

use std::convert::Infallible;
use std::time::Duration;

use http::request::Parts;
use http::{Method, StatusCode};
use tollgate::key::{self, Extracted, KeyExtractor, KeyInfo, Lookup};
use tollgate::policy::{AccessList, Count, MissingKey, TierLookup};
use tollgate::store::MaybeFuture;
use tollgate::{Ban, Error, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule};

use crate::rig::HOUR;

const TEN: Quota = Quota::per_hour(10);

fn layer(policies: impl IntoIterator<Item = Policy>) -> Result<RateLimitLayer, Error> {
    RateLimitLayer::composite(MemoryStore::new()).try_policies(policies)
}

#[track_caller]
fn refused<T: std::fmt::Debug>(built: Result<T, Error>, part: &str) {
    let error = built.expect_err(part);
    assert!(error.is_invalid() && error.to_string().contains(part), "no {part:?} in {error}");
}

#[track_caller]
fn fine(policies: impl IntoIterator<Item = Policy>) {
    for policy in policies {
        let built = layer([policy]);
        assert!(built.is_ok(), "{built:?}");
    }
}

fn tiers() -> TierLookup {
    TierLookup::new(|_: Lookup| async { Ok::<_, Infallible>(None) })
}

#[test]
fn two_policies_of_one_name_are_an_error_in_a_layer_and_in_a_limiter() {
    let text = "the name \"all\" is given to two policies";
    let (policy, rule) = (|| Policy::new("all", TEN), || Rule::new("all", TEN));
    let one = layer([policy()]).expect("one is valid");
    refused(layer([policy(), policy()]), text);
    refused(one.clone().try_policy(policy().key(key::method())), text);
    refused(one.clone().live().replace_policies([policy(), policy()]), text);
    assert!(one.live().replace_policies([Policy::new("other", TEN), policy()]).is_ok());
    refused(Limiter::try_new(MemoryStore::new(), [rule(), rule()]), text);
}

#[test]
fn a_cost_that_can_never_fit_is_an_error_unless_a_closure_or_a_tier_may_change_that() {
    let cost = |quota: Quota, units| Policy::new("export", quota).cost(units);
    let queue = Quota::leaky_bucket(10, Duration::from_secs(10)).queue(4);
    for (quota, holds) in [(TEN, 10), (TEN.burst(20), 20), (queue, 5), (Quota::concurrency(3), 3)] {
        fine([cost(quota, holds)]);
        let text = format!("policy \"export\": a request costs {} and the quota holds {holds} at most", holds + 1);
        refused(layer([cost(quota, holds + 1)]), &text);
        refused(layer([cost(quota, holds + 1).shadow()]), &text);
    }
    let tiered = cost(TEN, 60).key(key::host()).tier_lookup(tiers());
    let reserving = cost(TEN, 10).reserve(0.5, |_| false);
    fine([cost(TEN, 60).cost_by(|_| 60), cost(TEN, 60).tier(|_| None), tiered, reserving]);
    let rule = || Rule::new("export", TEN).cost(11);
    for rule in [rule(), rule().shadow()] {
        let limiter = Limiter::try_new(MemoryStore::new(), [Rule::new("fine", TEN).cost(10), rule]);
        refused(limiter, "rule \"export\": a check costs 11 and the quota holds 10 at most");
    }
    assert!(Limiter::try_new(MemoryStore::new(), [rule().tier_lookup(tiers())]).is_ok());
}

/// A key that every request has to have, and none has.
struct Strict;

impl KeyExtractor for Strict {
    fn extract(&self, _: &Parts) -> MaybeFuture<Extracted> {
        MaybeFuture::Ready(Extracted::Missing)
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::default().missing_key(MissingKey::Deny)
    }
}

#[test]
fn a_policy_by_which_requests_cost_nothing_is_an_error_unless_it_does_something_else() {
    let free = || Policy::new("export", TEN).cost(0).key(key::client_ip());
    for policy in [free(), free().shadow(), free().count(Count::failures()), free().tier(|_| None)] {
        refused(layer([policy]), "policy \"export\": requests cost 0, so this policy limits nothing");
    }
    let ban = || Ban::new(5, HOUR, HOUR);
    fine([free().metered(), free().cost_by(|_| 0), free().ban(ban()), free().ban_failures(ban(), Count::failures())]);
    let denying = free().deny(AccessList::parse(["192.0.2.1"]).expect("an address"));
    fine([denying, free().missing_key(MissingKey::Deny), free().key(Strict)]);
}

#[test]
fn a_long_log_whose_requests_cost_what_a_closure_returns_is_an_error() {
    let by_closure = |quota| Policy::new("export", quota).cost_by(|_| 5);
    let long = Quota::long_sliding_log(10_001, HOUR);
    refused(layer([by_closure(long)]), "policy \"export\": each request reads and writes the whole log");
    fine([by_closure(Quota::long_sliding_log(10_000, HOUR)), Policy::new("export", long).cost(5)]);
}

#[test]
fn what_can_apply_to_no_request_is_an_error() {
    let policy = || Policy::new("login", TEN).key(key::client_ip());
    let ban = |count| policy().ban_failures(Ban::new(5, HOUR, HOUR), count);
    let of = |method: &str| policy().methods([Method::GET, Method::from_bytes(method.as_bytes()).expect("a token")]);
    for (policy, text) in [
        (policy().count(Count::statuses([])), "policy \"login\": count is of no statuses"),
        (ban(Count::statuses([])), "policy \"login\": the ban is for responses of no statuses"),
        (of("post"), "policy \"login\": no request has the method \"post\": use POST"),
        (policy().routes([""; 0]), "policy \"login\": routes is an empty list"),
        (policy().methods([]), "policy \"login\": methods is an empty list"),
        (policy().routes(["/", "/users/:id"]), "policy \"login\": route \"/users/:id\" can never match: "),
    ] {
        refused(layer([policy]), text);
    }
    let routes = policy().routes(["/", "/users/{id}", "/files/{*path}", "/v{version}/a", "/{{braces}}", "/a:b"]);
    // Lists may be computed.
    let lists = policy().allow(AccessList::default()).deny(AccessList::default());
    fine([ban(Count::statuses([StatusCode::UNAUTHORIZED])), of("POST"), of("PURGE"), of("purge"), routes, lists]);
}

#[test]
fn policies_are_not_replaced_by_none_unless_that_is_said() {
    let layer = layer([Policy::new("one", TEN), Policy::new("two", TEN)]).expect("it is valid");
    let live = layer.clone().live();
    refused(live.replace_policies([]), "no policies in place of 2");
    assert!(format!("{layer:?}").contains("two"), "those in force stay: {layer:?}");
    live.remove_policies();
    assert!(!format!("{layer:?}").contains("two"), "{layer:?}");
    assert!(live.replace_policies([]).is_ok(), "nothing in place of nothing");
}
