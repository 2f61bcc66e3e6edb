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

/// What each policy has left.
fn left(limiter: &Limiter) -> Vec<u64> {
    rig::left(limiter, &everybody())
}

#[test]
fn what_a_permit_has_not_spent_is_refunded_of_every_rule() {
    let rules = [Rule::new("ten", TEN), Rule::new("five", Quota::fixed_window(5, HOUR)).cost(4)];
    let limiter = Limiter::new(memory(&ManualClock::new()), rules);
    let counters = now(limiter.counters(&everybody()));
    assert_eq!(counters, now(limiter.clone().counters(&everybody())));
    assert_ne!(counters, now(limiter.counters(&Key::new("user", "bob"))));
    for (units, spent, expected) in [(3, 1, [9, 4]), (3, 0, [9, 4]), (3, 3, [6, 1]), (1, 9, [5, 0])] {
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
    let limits = layer(["rows", "all"].map(|name| Policy::new(name, TEN))).in_units("rows").expect("valid");
    let (other, layer) = (limits.clone().live(), limits.without_handle().live());
    let (response, of_request) = counters(&layer);
    let policies = response.headers()["ratelimit-policy"].to_str().expect("text").to_owned();
    assert_eq!(policies.matches(";qu=\"rows\"").count(), 2, "{policies}");
    assert_eq!(left(&layer.limiter()), [10, 10], "a request takes none");

    let of_request = of_request.expect("both policies apply");
    let (decision, permit) = now(of_request.permit(7));
    assert!(decision.is_allowed());
    drop(permit.spend_units(6));
    assert_eq!(left(&layer.limiter()), [4, 4]);
    // Rules that are replaced hold for counters that are there, and not for those of another layer made of the same.
    let of_other = counters(&other).1.expect("both policies apply");
    assert_ne!(of_request, of_other);
    layer.replace_policies([Policy::new("all", Quota::fixed_window(100, HOUR))]).expect("it counts rows, too");
    assert!(now(of_request.permit(50)).0.is_allowed());
    assert!(!now(of_other.permit(50)).0.is_allowed());
    assert_eq!(of_request.checks().len(), 1);

    let of_requests = rig::layer([Policy::new("ten", TEN).metered()]).live();
    assert!(counters(&of_requests).1.is_none(), "a layer that counts requests has none");
}

#[test]
fn a_unit_with_other_letters_or_a_closure_that_refuses_without_one_is_an_error() {
    for unit in ["", "Rows", "content bytes", "a\"b"] {
        let error = layer([]).in_units(unit).expect_err(unit);
        assert!(error.is_invalid() && error.to_string().contains("unit"), "{error}");
    }
    let error = layer([]).deny_if(|_| None).expect_err("it counts requests");
    assert!(error.is_invalid() && error.to_string().contains("in_units"), "{error}");
}

#[test]
fn a_request_that_a_closure_refuses_takes_nothing() {
    let rows: [(fn(&Outcome) -> Outcome, StatusCode, &str); 2] = [
        (|outcome| outcome.to_denied(Some(HOUR)), StatusCode::TOO_MANY_REQUESTS, "3600"),
        (Outcome::clone, StatusCode::OK, ""),
    ];
    for (of, status, wait) in rows {
        let by = move |decided: &StoreDecision| {
            Some(Decision::new(decided.decision.outcomes().iter().map(of), decided.decision.source()))
        };
        let layer = layer([Policy::new("ten", TEN)]).in_units("rows").and_then(|layer| layer.deny_if(by));
        let layer = layer.expect("it counts rows").live();
        let (response, counters) = counters(&layer);
        assert_eq!((response.status(), counters.is_some()), (status, status == StatusCode::OK));
        rig::expect(response.headers(), &[("retry-after", wait)]);
        assert_eq!(left(&layer.limiter()), [10]);
    }
}
