//! Policies that would limit nothing, or refuse everything: each is an error when the layer is built.

use std::time::Duration;

use http::request::Parts;
use http::{Method, StatusCode};
use tollgate::key::{Extracted, KeyExtractor, KeyInfo};
use tollgate::policy::{AccessList, Count, MissingKey, TierLookup};
use tollgate::store::MaybeFuture;
use tollgate::{Ban, Error, Limiter, MemoryStore, Policy, Quota, RateLimitLayer, Rule, key};

const TEN: Quota = Quota::per_hour(10);
const HOUR: Duration = Duration::from_secs(3_600);

fn layer(policies: impl IntoIterator<Item = Policy>) -> Result<RateLimitLayer, Error> {
    RateLimitLayer::composite(MemoryStore::new()).try_policies(policies)
}

#[track_caller]
fn refused(built: Result<RateLimitLayer, Error>, texts: &[&str]) {
    let error = built.expect_err("it is an error");
    assert!(error.is_invalid(), "{error}");
    let text = error.to_string();
    for part in texts {
        assert!(text.contains(part), "no {part:?} in {text:?}");
    }
}

#[test]
fn two_policies_of_one_name_are_an_error_in_a_layer_and_in_a_limiter() {
    let texts = ["the name \"all\" is given to two policies", "give each its own"];
    let policy = || Policy::new("all", TEN);
    refused(layer([policy(), policy()]), &texts);
    refused(layer([policy()]).expect("one is valid").try_policy(policy().key(key::method())), &texts);
    let one = layer([policy()]).expect("one is valid");
    refused(one.clone().live().replace_policies([policy(), policy()]).map(|()| one.clone()), &texts);
    assert!(one.clone().live().replace_policies([Policy::new("other", TEN), policy()]).is_ok());
    let rules = [Rule::new("all", TEN), Rule::new("all", Quota::per_minute(3))];
    let error = Limiter::try_new(MemoryStore::new(), rules).expect_err("it is an error");
    assert!(texts.iter().all(|text| error.to_string().contains(text)), "{error}");
}

#[test]
#[should_panic(expected = "the name \"ip\" is given to two policies")]
fn two_limits_by_address_panic_as_they_have_one_name() {
    let _ = RateLimitLayer::composite(MemoryStore::new()).ip(TEN).ip(Quota::per_second(1));
}

#[test]
fn a_cost_that_can_never_fit_is_an_error_unless_a_closure_or_a_tier_may_change_that() {
    let cost = |quota: Quota, units| Policy::new("export", quota).cost(units);
    for (quota, holds) in [
        (TEN, 10),
        (TEN.burst(20), 20),
        (Quota::leaky_bucket(10, Duration::from_secs(10)).queue(4), 5),
        (Quota::concurrency(3), 3),
    ] {
        assert!(layer([cost(quota, holds)]).is_ok(), "{quota:?}");
        let holds_at_most = format!("a request costs {} and the quota holds {holds} at most", holds + 1);
        refused(layer([cost(quota, holds + 1)]), &["policy \"export\": ", &holds_at_most]);
        refused(layer([cost(quota, holds + 1).shadow()]), &[&holds_at_most]);
    }
    let tiers = TierLookup::new(|_: key::Lookup| async { Ok::<_, std::convert::Infallible>(None) });
    for policy in [
        cost(TEN, 60).cost_by(|_| 60),
        cost(TEN, 60).tier(|_| None),
        cost(TEN, 60).key(key::host()).tier_lookup(tiers),
        cost(TEN, 10).reserve(0.5, |_| false),
    ] {
        assert!(layer([policy]).is_ok());
    }
}

#[test]
fn a_cost_that_can_never_fit_is_an_error_in_a_limiter_unless_a_tier_may_change_that() {
    let limiter = |rule| Limiter::try_new(MemoryStore::new(), [Rule::new("fine", TEN).cost(10), rule]);
    for rule in [Rule::new("export", TEN).cost(11), Rule::new("export", TEN).cost(11).shadow()] {
        let error = limiter(rule).expect_err("it is an error");
        let text = "rule \"export\": a check costs 11 and the quota holds 10 at most, so all would be refused";
        assert!(error.is_invalid() && error.to_string().starts_with(text), "{error}");
    }
    let tiers = TierLookup::new(|_: key::Lookup| async { Ok::<_, std::convert::Infallible>(None) });
    assert!(limiter(Rule::new("export", TEN).cost(11).tier_lookup(tiers)).is_ok());
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
    let texts = ["policy \"export\": requests cost 0, so this policy limits nothing"];
    for policy in [free(), free().shadow(), free().count(Count::failures()), free().tier(|_| None)] {
        refused(layer([policy]), &texts);
    }
    let ban = || Ban::new(5, HOUR, HOUR);
    for policy in [
        free().metered(),
        free().cost_by(|_| 0),
        free().ban(ban()),
        free().ban_failures(ban(), Count::failures()),
        free().deny(AccessList::parse(["192.0.2.1"]).expect("an address")),
        free().missing_key(MissingKey::Deny),
        free().key(Strict),
    ] {
        let built = layer([policy]);
        assert!(built.is_ok(), "{built:?}");
    }
}

#[test]
fn a_count_of_no_statuses_is_an_error() {
    let policy = || Policy::new("login", TEN).key(key::client_ip());
    refused(layer([policy().count(Count::statuses([]))]), &["policy \"login\": count is of no statuses"]);
    let ban = |count| policy().ban_failures(Ban::new(5, HOUR, HOUR), count);
    refused(layer([ban(Count::statuses([]))]), &["policy \"login\": the ban is for responses of no statuses"]);
    let unauthorized = || Count::statuses([StatusCode::UNAUTHORIZED]);
    assert!(layer([policy().count(unauthorized())]).is_ok() && layer([ban(unauthorized())]).is_ok());
}

#[test]
fn a_standard_method_in_lower_case_is_an_error_and_one_of_an_extension_is_not() {
    let with = |method: &str| {
        layer([
            Policy::new("login", TEN).methods([Method::GET, Method::from_bytes(method.as_bytes()).expect("a token")])
        ])
    };
    refused(with("post"), &["policy \"login\": no request has the method \"post\": give POST"]);
    refused(with("Delete"), &["give DELETE"]);
    for method in ["POST", "PURGE", "purge"] {
        assert!(with(method).is_ok(), "{method}");
    }
}

#[test]
fn an_empty_list_of_routes_or_methods_is_an_error() {
    let policy = || Policy::new("login", TEN);
    refused(layer([policy().routes([""; 0])]), &["policy \"login\": routes is an empty list"]);
    refused(layer([policy().methods([])]), &["policy \"login\": methods is an empty list"]);
    // These may be computed.
    assert!(layer([policy().allow(AccessList::default()).deny(AccessList::default())]).is_ok());
}

#[test]
fn policies_are_not_replaced_by_none_unless_that_is_said() {
    let layer = layer([Policy::new("one", TEN), Policy::new("two", TEN)]).expect("it is valid");
    refused(
        layer.clone().live().replace_policies([]).map(|()| layer.clone()),
        &["no policies in place of 2", "remove_policies"],
    );
    assert!(format!("{layer:?}").contains("two"), "those in force stay: {layer:?}");
    layer.clone().live().remove_policies();
    assert!(!format!("{layer:?}").contains("two"), "{layer:?}");
    assert!(layer.clone().live().replace_policies([]).is_ok(), "nothing in place of nothing");
    assert!(layer.clone().live().replace_policies([Policy::new("one", TEN)]).is_ok());
}
