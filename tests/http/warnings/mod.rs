//! Traps of a set-up are warned of: each once, with a code and what to do; and what is meant is not.

mod clients;
mod keys;
mod refusals;
mod routes;
mod twice;
mod unused;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use axum::Router;
use axum::routing::get;
use http::Request;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tracing::Level;

use crate::rig;
use crate::support::log::{Log, Noting};

const MANY: Quota = Quota::per_hour(100_000);

/// What this thread logs.
struct Logged {
    log: Log,
    _noting: Noting,
}

impl Logged {
    fn start() -> Self {
        let log = Log::default();
        Self { _noting: log.note(Level::INFO), log }
    }

    /// The warnings.
    fn warnings(&self) -> Vec<String> {
        self.log.lines("WARN")
    }

    #[track_caller]
    fn none(&self, what: &str) {
        assert_eq!(self.warnings(), [""; 0], "{what}");
    }

    /// Checks that there is one warning, of this code and with these texts.
    #[track_caller]
    fn one(&self, code: &str, texts: &[&str]) {
        let warnings = self.warnings();
        let [warning] = &warnings[..] else { panic!("{code}: {warnings:#?}") };
        assert_is_in_page(warning);
        assert!(!warning.contains("203.0.113.9") && !warning.contains("10.0.0.1"), "no address is logged: {warning}");
        let code = format!("code=\"{code}\"");
        for text in texts.iter().chain([&&code[..]]) {
            assert!(warning.contains(text), "{text}: {warning}");
        }
    }

    /// Checks that there is one warning, of this code and with these texts, and that 50 more requests add none.
    #[track_caller]
    fn only<T>(&self, code: &str, texts: &[&str], more: impl Fn() -> T) {
        self.one(code, texts);
        for _ in 0..50 {
            more();
        }
        self.one(code, texts);
    }
}

/// Checks that the page on warnings has the line, whatever its fields are besides the code.
#[track_caller]
fn assert_is_in_page(warning: &str) {
    let page = include_str!("../../../docs/troubleshooting.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, line) = warning.split_once("WARN ").expect("a level");
    let (text, fields) = line.split_once(" code=").expect("a code");
    let code = fields.split(' ').next().expect("it has a value");
    assert!(page.contains(&format!("WARN {text} code={code}")), "not in the page: {warning}");
}

/// What is expected of an app: nothing of the first requests, and one warning of the last one, however often it comes.
#[track_caller]
fn warns(app: &Router, before: &[Request<String>], last: &Request<String>, code: &str, texts: &[&str]) {
    let logged = Logged::start();
    for request in before {
        send(app, request.clone());
    }
    logged.none("before");
    send(app, last.clone());
    logged.only(code, texts, || send(app, last.clone()));
}

/// An app of which nothing is warned, and the statuses of its responses.
#[track_caller]
fn is_quiet(what: &str, app: &Router, requests: &[(Request<String>, u16)]) {
    let logged = Logged::start();
    for (request, status) in requests {
        assert_eq!(send(app, request.clone()), *status, "{what}");
    }
    logged.none(what);
}

fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::composite(MemoryStore::new()).policies(policies)
}

/// Routes with a layer within the router.
fn app(layer: &RateLimitLayer) -> Router {
    pages().layer(layer.clone())
}

fn pages() -> Router {
    Router::new().route("/", get(|| async {})).route("/login", get(|| async {})).route("/users/{id}", get(|| async {}))
}

/// A request for a path from a known peer.
fn to(path: &str) -> Request<String> {
    let mut request = rig::request();
    *request.uri_mut() = path.parse().expect("a path");
    request
}

#[track_caller]
fn send(app: &Router, request: Request<String>) -> u16 {
    rig::send(app, request).status().as_u16()
}

/// The codes that a text has behind a mark.
fn codes(text: &str, mark: &str) -> BTreeSet<String> {
    let codes = text.match_indices(mark).map(|(place, _)| &text[place + mark.len() - 2..]);
    codes.map(|code| code.chars().take_while(char::is_ascii_alphanumeric).collect()).collect()
}

#[test]
fn every_code_has_an_entry_and_every_entry_a_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/http");
    let files = ["policy/diagnostics.rs", "../limiter/warned.rs"];
    let logged = files.map(|file| codes(&fs::read_to_string(root.join(file)).expect("it is text"), "\"TG"));
    let logged: BTreeSet<String> = logged.into_iter().flatten().collect();
    assert_eq!(logged, codes(include_str!("../../../docs/troubleshooting.md"), "## TG"));
    assert_eq!(logged.len(), 8, "{logged:?}");
}
