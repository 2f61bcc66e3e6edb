//! Refusals in the log: few lines, however many there are.

use std::convert::Infallible;
use std::future::ready;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use futures::FutureExt;
use http::{Request, Response};
use tollgate::{Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use super::{Logged, layer, request};

/// How long a refusal of a key is one line.
const PERIOD: u64 = 10;

fn one_each() -> Policy {
    Policy::new("each", Quota::per_hour(1)).key(key::header("x-user"))
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970")
}

/// Sends so many requests of 200 users in turn. Returns how many periods have begun meanwhile, the first included.
fn flood(layer: &RateLimitLayer, requests: usize) -> usize {
    let began = now().as_secs() / PERIOD;
    let inner = service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let service = layer.layer(inner);
    for user in (0..200).cycle().take(requests) {
        let response = service.clone().oneshot(request("/", &[("x-user", &user.to_string())]));
        assert!(response.now_or_never().is_some_and(|response| response.is_ok()));
    }
    usize::try_from(now().as_secs() / PERIOD - began + 1).expect("few")
}

/// The sum of the counts in lines.
fn counted(lines: &[String]) -> usize {
    let more = |line: &String| line.split_once("more=")?.1.split(' ').next()?.parse::<usize>().ok();
    lines.iter().map(|line| more(line).expect("a count")).sum()
}

#[test]
fn a_flood_in_shadow_mode_is_few_lines() {
    let (logged, layer) = (Logged::start(), layer([one_each().shadow()]));
    let periods = flood(&layer, 14_000);
    let texts =
        ["a policy in shadow mode would refuse this", "a policy in shadow mode would have refused more requests"];
    let [lines, _] = texts.map(|text| logged.log.lines(text));
    assert!(lines.len() >= 10 && logged.log.count("INFO") <= 11 * periods, "{}", logged.log.text());
    assert!(lines[0].contains("policy=\"each\"") && lines[0].contains("retry_after="), "{}", lines[0]);
    assert!(lines[0].contains("code=\"shadow_refused\""), "{}", lines[0]);
    drop(layer);
    let [lines, counts] = texts.map(|text| logged.log.lines(text));
    assert_eq!(lines.len() + counted(&counts), 14_000 - 200);
    assert_eq!(logged.log.count("x-user"), 0, "no key is logged");
}

#[test]
fn refusals_are_logged_where_that_is_set() {
    let (logged, quiet) = (Logged::start(), layer([one_each()]));
    flood(&quiet, 1_000);
    drop(quiet);
    assert_eq!(logged.log.text(), "");

    let loud = layer([one_each()]).log_refusals();
    flood(&loud, 1_000);
    drop(loud);
    let [lines, counts] =
        ["a policy refused a request", "a policy refused more requests"].map(|text| logged.log.lines(text));
    assert!((10..=20).contains(&lines.len()), "{lines:?}");
    assert_eq!(lines.len() + counted(&counts), 1_000 - 200);
    assert!(lines.iter().chain(&counts).all(|line| line.contains("code=\"refused\" policy=\"each\"")), "{lines:?}");
}

#[test]
fn each_policy_has_lines_of_its_own() {
    let logged = Logged::start();
    let all = Policy::new("all", Quota::per_hour(1)).shadow();
    let layer = layer([one_each(), all, Policy::new("none", Quota::per_hour(10_000)).shadow()]).log_refusals();
    flood(&layer, 400);
    drop(layer);
    let of = |policy: &str| logged.log.lines(&format!("policy=\"{policy}\""));
    let count = |policy: &str| {
        let (counts, lines): (Vec<_>, Vec<_>) = of(policy).into_iter().partition(|line| line.contains("more="));
        lines.len() + counted(&counts)
    };
    assert_eq!((count("each"), count("all"), count("none")), (200, 399, 0), "{}", logged.log.text());
}
