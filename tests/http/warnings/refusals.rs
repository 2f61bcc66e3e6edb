//! Refusals in the log: few lines, however many there are.

use std::time::Instant;

use tollgate::{Policy, Quota, RateLimitLayer, key};
use tower::Layer;

use super::{Logged, app, layer, send, to};
use crate::rig::{self, hello, of};

fn one_each() -> Policy {
    Policy::new("each", Quota::per_hour(1)).key(key::header("x-user"))
}

/// Sends so many requests of 200 users in turn. Returns how many lines a policy may have meanwhile: ten in 10 s.
fn flood(layer: &RateLimitLayer, requests: usize) -> usize {
    let began = Instant::now();
    let service = layer.layer(hello());
    for user in (0..200).cycle().take(requests) {
        rig::send(&service, of(&user.to_string()));
    }
    10 * (usize::try_from(began.elapsed().as_secs() / 10).expect("few") + 1)
}

#[test]
fn a_flood_in_shadow_mode_is_few_lines() {
    let all = Policy::new("all", Quota::per_hour(1)).shadow();
    let none = Policy::new("none", Quota::per_hour(100_000)).shadow();
    let (logged, layer) = (Logged::start(), layer([one_each().shadow(), all, none]));
    let most = flood(&layer, 14_000);
    for (policy, least) in [("each", 10), ("all", 10), ("none", 0)] {
        let lines = logged.log.lines(&format!("code=\"shadow_refused\" policy=\"{policy}\""));
        assert!((least..=least.min(1) * most).contains(&lines.len()), "each has its own: {}", logged.log.text());
        assert!(lines.iter().all(|line| line.contains("INFO") && line.contains("retry_after=")), "{lines:?}");
    }
    assert_eq!(logged.log.count("x-user"), 0, "no key is logged");
}

#[test]
fn refusals_are_logged_where_that_is_set_and_sampled_whatever_policies_are_replaced() {
    let logged = Logged::start();
    flood(&layer([one_each()]), 1_000);
    assert_eq!(logged.log.text(), "");
    let most = flood(&layer([one_each()]).log_denials(), 1_000);
    let lines = logged.log.lines("a policy refused a request");
    assert!((10..=most).contains(&lines.len()), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("code=\"refused\" policy=\"each\"")), "{lines:?}");

    let policy = || Policy::new("ip", Quota::per_hour(1)).key(key::client_ip());
    let layer = layer([policy()]).log_denials();
    let (logged, app) = (Logged::start(), app(&layer));
    for _ in 0..200 {
        layer.clone().live().replace_policies([policy()]).expect("it works");
        send(&app, to("/"));
    }
    // One for each period of 10 s that this took, and its count.
    assert!((1..=10).contains(&logged.log.count("code=\"refused\"")), "{}", logged.log.count("code=\"refused\""));
}
