//! Permits for any number of units, layers that count something else than requests, and requests that a closure refuses.

use std::time::Duration;

use http::{Response, StatusCode};
use tollgate::store::StoreDecision;
use tollgate::test_util::ManualClock;
use tollgate::{Counters, Decision, Key, Limiter, LiveLayer, Outcome, Policy, Quota, RateLimitHandle, Rule};
use tower::Layer;

use crate::rig::{self, Text, everybody, layer, now, request, responding};
use crate::support::time::memory;

const HOUR: Duration = Duration::from_secs(3_600);
const TEN: Quota = Quota::fixed_window(10, HOUR);

/// A limiter on a clock that stands still.
fn limiter(rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::new(memory(&ManualClock::new()), rules)
}

/// What each policy has left.
fn left(limiter: &Limiter) -> Vec<u64> {
    rig::left(limiter, &everybody())
}

#[test]
fn what_a_permit_has_not_spent_is_refunded_of_every_rule() {
    let limiter = limiter([Rule::new("ten", TEN), Rule::new("five", Quota::fixed_window(5, HOUR)).cost(4)]);
    let counters = now(limiter.counters(&everybody()));
    for (spent, expected) in [(1, [9, 4]), (0, [9, 4]), (3, [6, 1]), (9, [5, 0])] {
        let units = if spent > 3 { 1 } else { 3 };
        let (decision, permit) = now(counters.permit(units));
        assert!(decision.is_allowed(), "the cost of a rule does not matter");
        drop(permit.spend_units(spent));
        assert_eq!(left(&limiter), expected, "{spent}");
    }
    let (decision, permit) = now(counters.permit(1));
    assert!(!decision.is_allowed());
    drop(permit.spend());
    assert_eq!(left(&limiter), [5, 0]);
}

#[test]
fn counters_are_equal_by_limiter_rules_and_key() {
    let [one, other] = [(); 2].map(|()| limiter([Rule::new("ten", TEN)]));
    let of = |limiter: &Limiter, user| now(limiter.counters(&Key::new("user", user)));
    assert_eq!(of(&one, "ada"), of(&one.clone(), "ada"));
    assert_ne!(of(&one, "ada"), of(&one, "bob"));
    assert_ne!(of(&one, "ada"), of(&other, "ada"));
}

/// Sends a request, whose handler passes on the counters that it has.
fn counters(layer: &LiveLayer) -> (Response<()>, Option<Counters>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let handler = responding(move |request| {
        let handle = request.extensions().get::<RateLimitHandle>().expect("it is there");
        sender.send(handle.counters()).expect("it is received");
        Response::new(Text::default())
    });
    let response = rig::send(&layer.layer(handler), request());
    (response.map(drop), receiver.try_recv().ok().flatten())
}

#[test]
fn a_layer_in_units_shows_them_and_its_service_takes_them() {
    let policies = ["rows", "all"].map(|name| Policy::new(name, TEN));
    let layer = layer(policies).in_units("rows").expect("valid").without_handle();
    let layer = layer.live();
    let (response, counters_of_request) = counters(&layer);
    let policies = response.headers()["ratelimit-policy"].to_str().expect("text").to_owned();
    assert_eq!(policies.matches(";qu=\"rows\"").count(), 2, "{policies}");
    assert_eq!(left(&layer.limiter()), [10, 10], "a request takes none");

    let counters_of_request = counters_of_request.expect("both policies apply");
    let (decision, permit) = now(counters_of_request.permit(7));
    assert!(decision.is_allowed());
    drop(permit.spend_units(6));
    assert_eq!(left(&layer.limiter()), [4, 4]);
    // Rules that are replaced hold for counters that are there.
    layer.replace_policies([Policy::new("all", Quota::fixed_window(100, HOUR))]).expect("it counts rows, too");
    assert!(now(counters_of_request.permit(50)).0.is_allowed());
    assert_eq!(counters_of_request.checks().len(), 1);

    let of_requests = rig::layer([Policy::new("ten", TEN).metered()]).live();
    assert!(counters(&of_requests).1.is_none(), "a layer that counts requests has none");
}

#[test]
fn a_unit_with_other_letters_or_a_closure_that_refuses_without_one_is_an_error() {
    for unit in ["", "Rows", "content bytes", "a\"b"] {
        let error = layer([Policy::new("ten", TEN)]).in_units(unit).expect_err(unit);
        assert!(error.is_invalid() && error.to_string().contains("unit"), "{error}");
    }
    let error = layer([]).deny_if(|_| None).expect_err("it counts requests");
    assert!(error.is_invalid() && error.to_string().contains("in_units"), "{error}");
}

#[test]
fn a_request_that_a_closure_refuses_takes_nothing() {
    let policies = || [Policy::new("ten", TEN), Policy::new("hundred", Quota::fixed_window(100, HOUR))];
    let of = |of: fn(&Outcome) -> Outcome| {
        let by = move |decided: &StoreDecision| {
            Some(Decision::new(decided.decision.outcomes().iter().map(of), decided.decision.source()))
        };
        let layer = layer(policies()).in_units("rows");
        layer.and_then(|layer| layer.deny_if(by)).expect("it counts rows").live()
    };
    let (refusing, admitting) = (of(|outcome| outcome.to_denied(Some(HOUR))), of(Outcome::clone));
    for _ in 0..3 {
        let (response, counters) = counters(&refusing);
        assert_eq!((response.status(), counters), (StatusCode::TOO_MANY_REQUESTS, None));
        assert_eq!(response.headers()["retry-after"], "3600");
    }
    assert_eq!(left(&refusing.limiter()), [10, 100]);
    assert_eq!(counters(&admitting).0.status(), StatusCode::OK);
    assert_eq!(left(&admitting.limiter()), [10, 100]);
}

#[test]
fn counters_of_two_layers_made_of_one_differ_and_follow_their_own_rules() {
    let limits = layer([Policy::new("ten", TEN)]).in_units("rows").expect("it counts rows");
    let (one, two) = (limits.clone().live(), limits.without_handle().live());
    let [of_one, again, of_two] = [&one, &one, &two].map(|layer| counters(layer).1.expect("it has them"));
    assert!(of_one == again && of_one != of_two);
    one.replace_policies([Policy::new("ten", Quota::fixed_window(1_000, HOUR))]).expect("it counts rows, too");
    assert!(now(of_one.permit(500)).0.is_allowed());
    assert!(!now(of_two.permit(500)).0.is_allowed());
}
