//! Quotas that are looked up by the key: remembered, bounded, and never waited for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Request;
use tokio::time::{Instant, advance, sleep};
use tollgate::key::Lookup;
use tollgate::policy::TierLookup;
use tollgate::{Policy, Quota, key};

use super::rig::{HOUR, Rig, Service, Text, line, on_each_store, send, with};

const OWN: Quota = Quota::fixed_window(100, HOUR);
const PRO: Quota = Quota::fixed_window(1_000, HOUR);

type Looked = Result<Option<Quota>, &'static str>;

/// Counts how often something is looked up.
#[derive(Clone, Default)]
struct Lookups(Arc<AtomicUsize>);

impl Lookups {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A lookup that answers by the user's name.
    fn by(&self, find: fn(&str) -> Looked) -> TierLookup {
        let lookups = self.clone();
        TierLookup::new(move |wanted: Lookup| {
            lookups.0.fetch_add(1, Ordering::Relaxed);
            let found = find(wanted.text().expect("a user"));
            async move { found }
        })
    }

    /// A lookup that never answers.
    fn hanging(&self) -> TierLookup {
        let lookups = self.clone();
        TierLookup::new(move |_| {
            lookups.0.fetch_add(1, Ordering::Relaxed);
            std::future::pending::<Looked>()
        })
    }
}

fn by_name(user: &str) -> Looked {
    match user {
        "pro" => Ok(Some(PRO)),
        "broken" => Err("the directory is away"),
        _ => Ok(None),
    }
}

fn policy(lookup: TierLookup) -> Policy {
    Policy::new("user", OWN).key(key::header("x-user")).tier_lookup(lookup)
}

fn service(lookup: TierLookup) -> Service {
    Rig::memory().service([policy(lookup)])
}

fn of(user: &str) -> Request<Text> {
    with("x-user", user)
}

/// The limit a user is told.
async fn limit(service: &Service, user: &str) -> String {
    line(&send(service, of(user)).await, "x-ratelimit-limit").to_owned()
}

#[tokio::test]
async fn the_quota_of_a_key_is_looked_up_and_shown() {
    on_each_store(async |rig| {
        let service = rig.service([policy(Lookups::default().by(by_name))]);
        let response = send(&service, of("pro")).await;
        assert_eq!(line(&response, "ratelimit-policy"), r#""user";q=1000;w=3600"#, "{}", rig.name);
        assert_eq!(line(&response, "x-ratelimit-remaining"), "999", "{}", rig.name);
        assert_eq!(limit(&service, "free").await, "100", "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_key_is_looked_up_once_for_two_requests() {
    let lookups = Lookups::default();
    let service = service(lookups.by(by_name));
    for (user, lookups_then) in [("pro", 1), ("pro", 1), ("free", 2), ("free", 2), ("pro", 2)] {
        let _ = limit(&service, user).await;
        assert_eq!(lookups.count(), lookups_then, "{user}");
    }
}

#[tokio::test]
async fn a_request_without_a_key_looks_nothing_up() {
    let lookups = Lookups::default();
    assert_eq!(send(&service(lookups.by(by_name)), super::rig::get()).await.status(), 200);
    assert_eq!(lookups.count(), 0);
}

#[tokio::test]
async fn no_more_keys_are_remembered_than_the_capacity() {
    let lookups = Lookups::default();
    let service = service(lookups.by(by_name).capacity(10));
    for round in 0..2 {
        for user in 0..200 {
            let _ = limit(&service, &format!("{round}-{}", user % 100)).await;
        }
    }
    let again = lookups.count();
    for user in 0..100 {
        let _ = limit(&service, &format!("0-{user}")).await;
    }
    assert!(lookups.count() - again >= 90, "at most 10 of 100 were remembered: {} were not", lookups.count() - again);
}

#[tokio::test]
async fn a_lifetime_of_nothing_remembers_nothing() {
    let lookups = Lookups::default();
    let service = service(lookups.by(by_name).ttl(Duration::ZERO));
    for expected in 1..=3 {
        assert_eq!(limit(&service, "pro").await, "1000");
        assert_eq!(lookups.count(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_lookup_gives_the_policys_quota_and_is_not_repeated_for_a_second() {
    let lookups = Lookups::default();
    let service = service(lookups.by(by_name));
    for (millis, expected) in [(0, 1), (0, 1), (999, 1), (1, 2), (0, 2), (1_000, 3)] {
        advance(Duration::from_millis(millis)).await;
        assert_eq!(limit(&service, "broken").await, "100");
        assert_eq!(lookups.count(), expected, "after {millis} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_never_ends_gives_the_policys_quota_within_its_timeout() {
    let lookups = Lookups::default();
    let service = service(lookups.hanging());
    let start = Instant::now();
    assert_eq!(limit(&service, "ada").await, "100");
    let waited = start.elapsed();
    assert!(waited >= Duration::from_secs(1) && waited <= Duration::from_millis(1_002), "{waited:?}");
    assert_eq!(limit(&service, "ada").await, "100");
    assert_eq!((start.elapsed(), lookups.count()), (waited, 1), "it is not waited for again at once");
    sleep(Duration::from_millis(1_010)).await;
    assert_eq!(limit(&service, "ada").await, "100");
    assert_eq!(lookups.count(), 2, "1 s after it failed");
}

#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_lookup_can_be_set() {
    let service = service(Lookups::default().hanging().timeout(Duration::from_millis(7)));
    let start = Instant::now();
    assert_eq!(limit(&service, "ada").await, "100");
    assert!(start.elapsed() <= Duration::from_millis(9), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lookup_that_recovers_counts_again() {
    let lookups = Lookups::default();
    let (seen, calls) = (lookups.clone(), lookups.clone());
    let service = service(TierLookup::new(move |_| {
        let first = seen.0.fetch_add(1, Ordering::Relaxed) == 0;
        async move { if first { Err("the directory is away") } else { Ok(Some(PRO)) } }
    }));
    assert_eq!(limit(&service, "ada").await, "100");
    advance(Duration::from_secs(1)).await;
    assert_eq!(limit(&service, "ada").await, "1000");
    advance(Duration::from_secs(5)).await;
    assert_eq!(limit(&service, "ada").await, "1000");
    assert_eq!(calls.count(), 2);
}

#[tokio::test]
async fn a_key_that_is_on_a_list_is_not_looked_up() {
    let lookups = Lookups::default();
    let list = tollgate::policy::AccessList::default().key("ada");
    let service = Rig::memory().service([policy(lookups.by(by_name)).allow(list)]);
    assert_eq!(send(&service, of("ada")).await.headers().len(), 0);
    assert_eq!(lookups.count(), 0);
}
