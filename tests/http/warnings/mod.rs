//! Traps of a set-up are warned of: each once, with a code and what to do; and what is meant is not.

mod keys;
mod twice;
mod unused;

use axum::Router;
use axum::routing::get;
use http::Request;
use tollgate::policy::AccessList;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use tower::Layer;
use tracing::Level;

use crate::rig::{self, hello, of};
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

    /// Checks that there is one warning, of this code and with this text, and that ten more requests add none.
    #[track_caller]
    fn only<T>(&self, code: &str, text: &str, more: impl Fn() -> T) {
        for _ in 0..10 {
            let warnings = self.warnings();
            let [warning] = &warnings[..] else { panic!("{code}: {warnings:#?}") };
            assert!(
                warning.contains(&format!("code=\"{code}\"")) && warning.contains(text),
                "{code}, {text}: {warning}"
            );
            assert!(
                !warning.contains("203.0.113.9") && !warning.contains("10.0.0.1"),
                "no address is logged: {warning}"
            );
            more();
        }
    }
}

/// What is expected of an app: nothing of the first requests, and one warning of the last one, however often it comes.
#[track_caller]
fn warns(app: &Router, before: &[Request<String>], last: &Request<String>, code: &str, text: &str) {
    let logged = Logged::start();
    for request in before {
        send(app, request.clone());
    }
    logged.none("before");
    send(app, last.clone());
    logged.only(code, text, || send(app, last.clone()));
}

/// An app of which nothing is warned, and the statuses of its responses.
#[track_caller]
fn is_quiet(app: &Router, requests: &[(Request<String>, u16)]) {
    let logged = Logged::start();
    for (place, (request, status)) in requests.iter().enumerate() {
        assert_eq!(send(app, request.clone()), *status, "request {place}");
    }
    logged.none("it is meant");
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

#[test]
fn refusals_are_logged_where_that_is_set_or_in_shadow_mode_and_are_few_lines_though_policies_are_replaced() {
    let each = || Policy::new("each", Quota::per_hour(1)).key(key::header("x-user"));
    let list = || AccessList::parse(["ada"]).expect("a key");
    let shadow = layer([each().shadow(), Policy::new("all", Quota::per_hour(1)).shadow()]);
    for (layer, code, policies) in [
        (layer([each()]), "", &[][..]),
        (layer([each()]).log_denials(), "denied", &["each"]),
        (layer([each().deny(list())]), "", &[]),
        (layer([each().deny(list())]).log_denials(), "forbidden", &["each"]),
        (shadow, "shadow_denied", &["each", "all"]),
    ] {
        let logged = Logged::start();
        for _ in 0..200 {
            layer.clone().live().replace_policies(layer.clone().live().policies()).expect("they are valid");
            rig::send(&layer.layer(hello()), of("ada"));
        }
        for policy in policies {
            let lines = logged.log.lines(&format!("code=\"{code}\" policy=\"{policy}\"")).len();
            assert!((1..=20).contains(&lines), "{policy}: {}", logged.log.text());
        }
        assert_eq!(logged.log.text().is_empty(), policies.is_empty());
        assert_eq!((logged.log.count("x-user"), logged.warnings().len()), (0, 0), "no key, and no warning");
    }
}
