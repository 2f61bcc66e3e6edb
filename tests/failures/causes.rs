//! Why a store, a lookup or a tally failed, in errors and in the log: the whole chain of causes, on one line.

use std::error::Error as StdError;
use std::{fmt, io};

use tollgate::Error;
use tracing::Level;

use super::ratios::{Switch, counter, load};
use super::rig::{MANY, MOST, Mood, Moody, ask, layer};
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

#[tokio::test(start_paused = true)]
async fn the_line_of_an_outage_has_every_cause() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let store = Moody::new(Mood::Decides);
    store.fail_with(|| Error::store("no decision", driver()));
    let layer = layer(&store, MANY);
    for _ in 0..MOST {
        ask(&layer, "ada").await;
    }
    assert_names(&log, &["store_unavailable"], DRIVER);
}

#[tokio::test]
async fn the_lines_of_tallies_and_lookups_have_every_cause() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let tally = Switch::new();
    tally.set_off(true);
    load(&tally.store(), &[counter("all", "all")], 50, 3).await;
    assert_names(&log, &["tally_unavailable"], "it is off: connection refused");
    #[cfg(feature = "lookup")]
    {
        use tollgate::{Key, MemoryStore, Policy, RateLimitLayer, key};

        let account = key::lookup(key::header("x-user"), |_| async { Err::<Option<Key>, _>(driver()) });
        let policy = Policy::new("account", MANY).key(account);
        ask(&RateLimitLayer::new(MemoryStore::new(), policy), "ada").await;
        assert_names(&log, &["lookup_failed", "key_unknown"], DRIVER);
    }
}

#[track_caller]
fn assert_names(log: &Log, codes: &[&str], causes: &str) {
    for code in codes {
        let lines = log.lines(&format!("code=\"{code}\""));
        assert!(!lines.is_empty() && lines.iter().all(|line| line.contains(causes)), "{code}: {}", log.text());
    }
}
