//! Why a store, a lookup or a tally failed, in errors and in the log: the whole chain of causes, on one line.

use std::error::Error as StdError;
use std::pin::Pin;
use std::{fmt, io};

use tollgate::test_util::FailingStore;
use tollgate::{Error, Key, Limiter, MemoryStore, OnFailure, Rule};
use tollgate_bandwidth::Flow;
use tollgate_ratio::{RatioStore, Report, Tally, Totals};
use tracing::Level;

use super::ratios::{counter, load};
use super::rig::{MANY, Mood, Moody, ask, layer};
use crate::support::doubles::away;
use crate::support::log::Log;

/// An error with a cause.
#[derive(Debug)]
struct Caused(&'static str, Option<Box<dyn StdError + Send + Sync>>);

impl fmt::Display for Caused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl StdError for Caused {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&**self.1.as_ref()?)
    }
}

/// A tally that never replies.
struct NoTally;

impl Tally for NoTally {
    fn report(&self, _: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        Box::pin(std::future::ready(Err(Error::store("no totals", driver()))))
    }
}

/// A driver's error: it repeats its cause, which has a cause of its own and two lines.
fn driver() -> Caused {
    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
    let lines = Caused("no route\r\n\u{1b}[31mto db-1", Some(refused.into()));
    Caused("pool: no route\r\n\u{1b}[31mto db-1", Some(Box::new(lines)))
}

const DRIVER: &str = "pool: no route   [31mto db-1: connection refused";

#[test]
fn the_alternate_format_has_every_cause_once_and_on_one_line() {
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let nested = Error::connection("no connection", refused());
    for (error, text) in [
        (Error::invalid("limit 0"), "limit 0".to_owned()),
        (Error::connection("no connection", refused()), "no connection: connection refused".to_owned()),
        (Error::store("no decision", nested), "no decision: no connection: connection refused".to_owned()),
        (Error::store("no decision", driver()), format!("no decision: {DRIVER}")),
    ] {
        assert_eq!(format!("{error:#}"), text);
        assert!(text.starts_with(&error.to_string()), "the plain format has no cause");
    }
}

#[tokio::test]
async fn the_error_of_a_flow_has_the_causes_of_its_stores_error() {
    let store = FailingStore::new(MemoryStore::new());
    let limiter = Limiter::new(store.clone(), [Rule::new("messages", MANY)]).on_failure(OnFailure::Deny);
    let flow = Flow::of(&limiter, &Key::new("user", "ada")).await.expect("memory never fails");
    store.fail_with(away);
    let error = flow.check(900).await.expect_err("the store is unavailable");
    assert!(format!("{error:#}").ends_with(": the store is away: gone"), "{error:#}");
}

#[tokio::test(start_paused = true)]
async fn the_line_of_an_outage_has_every_cause() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let store = Moody::new(Mood::Decides);
    store.fail_with(|| Error::store("no decision", driver()));
    let layer = layer(&store, MANY);
    for _ in 0..10 {
        ask(&layer, "ada").await;
    }
    assert_names(&log, "store_unavailable");
}

#[tokio::test]
async fn the_line_of_a_tally_has_every_cause() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let store = RatioStore::new(NoTally);
    load(&store, &[counter("all", "all")], 50, 2).await;
    assert_names(&log, "tally_unavailable");
}

#[cfg(feature = "lookup")]
#[tokio::test]
async fn the_lines_of_lookups_have_every_cause() {
    use tollgate::{Policy, Quota, RateLimitLayer, key};

    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let account = key::lookup(key::header("x-user"), |_| async { Err::<Option<Key>, _>(driver()) });
    let policy = Policy::new("account", Quota::per_hour(100)).key(account);
    let layer = RateLimitLayer::composite(MemoryStore::new()).policy(policy);
    ask(&layer, "ada").await;
    assert_names(&log, "lookup_failed");
    assert_names(&log, "key_unknown");
}

#[track_caller]
fn assert_names(log: &Log, code: &str) {
    let lines = log.lines(&format!("code=\"{code}\""));
    assert!(!lines.is_empty() && lines.iter().all(|line| line.contains(DRIVER)), "{code}: {}", log.text());
}
