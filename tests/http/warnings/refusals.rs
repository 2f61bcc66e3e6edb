//! Refusals in the log: few lines, however many there are.

use std::convert::Infallible;
use std::future::ready;
use std::time::Instant;

use axum::body::Body;
use futures::FutureExt;
use http::{Request, Response};
use tollgate::{Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use super::{Logged, layer, request};

fn one_each() -> Policy {
    Policy::new("each", Quota::per_hour(1)).key(key::header("x-user"))
}

/// Sends so many requests of 200 users in turn. Returns how many lines a policy may have meanwhile: ten in 10 s.
fn flood(layer: &RateLimitLayer, requests: usize) -> usize {
    let began = Instant::now();
    let inner = service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let service = layer.layer(inner);
    for user in (0..200).cycle().take(requests) {
        let response = service.clone().oneshot(request("/", &[("x-user", &user.to_string())]));
        assert!(response.now_or_never().is_some_and(|response| response.is_ok()));
    }
    10 * (usize::try_from(began.elapsed().as_secs() / 10).expect("few") + 1)
}

#[test]
fn a_flood_in_shadow_mode_is_few_lines() {
    let (logged, layer) = (Logged::start(), layer([one_each().shadow()]));
    let most = flood(&layer, 14_000);
    let lines = logged.log.lines("a policy in shadow mode would refuse this request");
    assert!((10..=most).contains(&lines.len()) && logged.log.count("INFO") == lines.len(), "{}", logged.log.text());
    assert!(lines[0].contains("code=\"shadow_refused\" policy=\"each\" retry_after="), "{}", lines[0]);
    assert_eq!(logged.log.count("x-user"), 0, "no key is logged");
}

#[test]
fn refusals_are_logged_where_that_is_set() {
    let (logged, quiet) = (Logged::start(), layer([one_each()]));
    flood(&quiet, 1_000);
    assert_eq!(logged.log.text(), "");

    let most = flood(&layer([one_each()]).log_denials(), 1_000);
    let lines = logged.log.lines("a policy refused a request");
    assert!((10..=most).contains(&lines.len()), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("code=\"refused\" policy=\"each\"")), "{lines:?}");
}

#[test]
fn each_policy_has_lines_of_its_own() {
    let logged = Logged::start();
    let all = Policy::new("all", Quota::per_hour(1)).shadow();
    let layer = layer([one_each(), all, Policy::new("none", Quota::per_hour(10_000)).shadow()]).log_denials();
    let most = flood(&layer, 400);
    for (policy, least) in [("each", 10), ("all", 10), ("none", 0)] {
        let lines = logged.log.lines(&format!("policy=\"{policy}\""));
        assert!((least..=least.min(1) * most).contains(&lines.len()), "{}", logged.log.text());
    }
}
