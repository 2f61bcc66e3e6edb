//! Which responses count, and what becomes of requests that get none.

use std::future::pending;
use std::io;

use futures::FutureExt;
use http::{Request, Response, StatusCode};
use tollgate::policy::Count;
use tollgate::{Policy, Quota};
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{HOUR, Rig, Text, as_told, each, get, line, over, send, statuses, with};

const FIVE: Quota = Quota::fixed_window(5, HOUR);

#[test]
fn failures_successes_listed_statuses_or_those_of_a_closure_count() {
    let errors = (Count::failures(), &[400, 401, 404, 500, 599][..], &[200, 204, 304, 399, 600][..]);
    let others = (Count::successes(), &[200, 304][..], &[400, 429, 500][..]);
    let listed = Count::statuses([StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN]);
    let closure = Count::when(|response| response.status != StatusCode::NOT_MODIFIED);
    let rows = [errors, others, (listed, &[401, 403], &[200, 404, 500]), (closure, &[200, 500], &[304])];
    for (count, counting, spared) in rows.into_iter().chain([(Count::all(), &[200, 500][..], &[][..])]) {
        for (status, left) in counting.iter().map(|status| (status, 4)).chain(spared.iter().map(|status| (status, 5))) {
            let rig = Rig::new();
            let service = over(&rig.layer([Policy::new("policy", FIVE).count(count.clone())]), as_told);
            let response = send(&service, with("x-status", &status.to_string()));
            assert_eq!(line(&response, "x-ratelimit-remaining"), left.to_string(), "{count:?}, {status}");
            assert_eq!(rig.left_of_all("policy", FIVE), left, "{count:?}, {status}");
        }
    }
}

#[test]
fn guessing_passwords_ends_after_five_failures_and_logging_in_does_not_count() {
    let service = over(&Rig::new().layer([Policy::new("login", FIVE).count(Count::failures())]), as_told);
    let attempts = ["200", "401", "401", "200", "401", "200", "401", "401", "200", "401"];
    let expected = [200, 401, 401, 200, 401, 200, 401, 401, 429, 429];
    assert_eq!(statuses(&service, attempts.map(|status| with("x-status", status))), expected);
}

#[test]
fn an_error_of_the_service_is_a_failure_and_no_success() {
    for (count, left) in [
        (Count::all(), 4),
        (Count::failures(), 4),
        (Count::when(|_| false), 4),
        (Count::served(), 4),
        (Count::successes(), 5),
        (Count::statuses([StatusCode::OK]), 5),
    ] {
        let (rig, what) = (Rig::new(), format!("{count:?}"));
        let broken = service_fn(async |_: Request<Text>| Err::<Response<Text>, _>(io::Error::other("broken")));
        let service = rig.layer([Policy::new("policy", FIVE).count(count)]).layer(broken);
        service.oneshot(get()).now_or_never().expect("at once").expect_err("the service is broken");
        assert_eq!(rig.left_of_all("policy", FIVE), left, "{what}");
    }
}

#[test]
fn a_request_that_is_dropped_keeps_its_units_unless_the_policy_refunds_them() {
    for quota in each(5) {
        for (policy, left) in [
            (Policy::new("policy", quota), 3),
            (Policy::new("policy", quota).count(Count::failures()), 3),
            (Policy::new("policy", quota).refund_dropped(), 5),
        ] {
            let (rig, what) = (Rig::new(), format!("{policy:?}"));
            let inner = service_fn(|_: Request<Text>| pending::<Result<Response<Text>, io::Error>>());
            let mut response = Box::pin(rig.layer([policy.cost(2)]).layer(inner).oneshot(get()));
            assert!((&mut response).now_or_never().is_none());
            assert_eq!(rig.left_of_all("policy", quota), 3, "it is taken while the request is under way: {what}");
            drop(response);
            assert_eq!(rig.left_of_all("policy", quota), left, "{what}");
        }
    }
    // What was answered is refunded no more, although nobody reads the body.
    let rig = Rig::new();
    drop(send(&rig.service([Policy::new("answered", FIVE).refund_dropped()]), get()));
    assert_eq!(rig.left_of_all("answered", FIVE), 4);
}
