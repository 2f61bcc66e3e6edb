//! What operators are told of lookups.

use std::future::Future;

use futures::future::join_all;
use tollgate::{Policy, RateLimitLayer};
use tracing::Level;

use super::rig::{Directory, MANY, by, memory, ms, status, tiered};
use crate::support::log::Log;

/// What is logged while a test runs.
async fn logged(test: impl Future<Output = ()>) -> String {
    let log = Log::default();
    let _noting = log.note(Level::TRACE);
    test.await;
    log.text()
}

/// Sends many requests at once, with a secret each.
async fn send_many(policies: impl IntoIterator<Item = Policy>) {
    let layer = RateLimitLayer::composite(memory()).policies(policies);
    join_all((0..50).map(|n| {
        let layer = layer.clone();
        async move { status(&layer, &format!("sk_live_{n}")).await }
    }))
    .await;
}

#[track_caller]
fn is_told_seldom(log: &str, code: &str) {
    let lines = log.lines().filter(|line| line.contains("WARN") && line.contains(code)).count();
    assert!((1..=3).contains(&lines), "{lines} lines with {code}, of 50 requests in a second or two: {log}");
    assert!(!log.contains("sk_live"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn lookups_that_are_too_many_are_told_of_once_a_second() {
    let log = logged(send_many([tiered(Directory::default().tiers(ms(5)).in_flight(1))])).await;
    is_told_seldom(&log, "lookups_full");
}

#[tokio::test(start_paused = true)]
async fn lookups_that_fail_are_told_of_once_a_second_and_never_with_what_they_looked_for() {
    let failing = Directory::default().tiers_by(|_| std::future::ready(Err("the directory is away")));
    let log = logged(send_many([tiered(failing)])).await;
    is_told_seldom(&log, "lookup_failed");
    assert!(log.contains("the directory is away"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_unknown_are_told_of_once_a_second() {
    let failing = Directory::default().accounts_by(|_| std::future::ready(Err("the directory is away")));
    let log = logged(send_many([by(failing), Policy::new("all", MANY)])).await;
    is_told_seldom(&log, "key_unknown");
}
