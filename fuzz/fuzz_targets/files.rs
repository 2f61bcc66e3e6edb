//! Files and other texts that operators write: an error names the place in a file, and what is read can be written and
//! read again.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::sync::LazyLock;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use futures::FutureExt;
use libfuzzer_sys::{Corpus, fuzz_target};
use tollgate::policy::{AccessList, Algorithm, PolicyName};
use tollgate::{Error, Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_admin::{Admin, Entry};
use tollgate_config::Config;
use tollgate_ratio::RatioConfig;
use tollgate_shed::FleetConfig;
use tower::ServiceExt;

static ADMIN: LazyLock<axum::Router> = LazyLock::new(|| {
    let layer = RateLimitLayer::new(MemoryStore::new(), Policy::new("plan", Quota::per_minute(100)));
    Admin::local().layer("api", layer.live()).router(|_| true)
});

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Some((kind, bytes)) = bytes.split_first() else { return Corpus::Reject };
    let Ok(text) = str::from_utf8(bytes) else { return Corpus::Reject };
    match kind {
        b'j' => json(text),
        b'k' => texts(text),
        b'a' => admin(text),
        _ => toml(text),
    }
    Corpus::Keep
});

fn toml(text: &str) {
    let config = placed(text, Config::from_toml_without(text, &["fleet", "ratios"]));
    placed(text, FleetConfig::from_toml(text));
    placed(text, RatioConfig::from_toml(text));
    let Some(config) = config else { return };
    let _ = config.layer(MemoryStore::new()).expect("a file that is read makes a layer");
    // TOML itself has no numbers above those of i64.
    if let Ok(table) = text.parse::<toml::Table>() {
        let again = table.to_string();
        let same = Config::from_toml_without(&again, &["fleet", "ratios"]).expect("it was read before");
        assert_eq!(format!("{same:?}"), format!("{config:?}"), "{again}");
    }
}

/// Checks that an error is one line, with a line and a column that the text has.
fn placed<T>(text: &str, result: Result<T, Error>) -> Option<T> {
    let error = match result {
        Ok(read) => return Some(read),
        Err(error) => error,
    };
    let shown = error.to_string();
    let line = shown.strip_prefix("line ").and_then(|rest| rest.split_once(": ")?.0.parse::<usize>().ok());
    let column = shown.rsplit_once(" (column ").and_then(|(_, end)| end.strip_suffix(')')?.parse::<usize>().ok());
    let (line, column) = line.zip(column).unwrap_or_else(|| panic!("{shown:?}"));
    let found = text.split('\n').nth(line - 1).unwrap_or_else(|| panic!("{shown:?}"));
    assert!(error.is_invalid() && column <= found.chars().count() + 1, "{shown:?}");
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    None
}

/// An override, as a file and the JSON API have it.
fn json(text: &str) {
    if let Ok(entry) = serde_json::from_str::<Entry>(text) {
        let again = serde_json::to_string(&entry).expect("JSON");
        assert_eq!(serde_json::from_str::<Entry>(&again).expect("it was read before"), entry);
    }
}

fn texts(text: &str) {
    again::<Key>(text);
    again::<PolicyName>(text);
    again::<Algorithm>(text);
    drop(AccessList::parse([text]));
    let key = Key::new(text, text);
    // No longer text is parsed.
    if key.as_str().len() <= 1_024 {
        assert_eq!(key.as_str().parse::<Key>().expect("a key"), key);
    }
}

fn again<T: FromStr<Err: Debug> + Display + PartialEq + Debug>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        assert_eq!(read.to_string().parse::<T>().expect("it was read before"), read);
    }
}

/// A request to the JSON API: its method, its target, and after a line its body.
fn admin(text: &str) {
    let (head, body) = text.split_once('\n').unwrap_or((text, ""));
    let (method, target) = head.split_once(' ').unwrap_or(("PUT", head));
    let request = Request::builder().method(method).uri(target).header("content-type", "application/json");
    let Ok(request) = request.body(Body::from(body.to_owned())) else { return };
    let response = ADMIN.clone().oneshot(request).now_or_never().expect("it does not wait").expect("infallible");
    let status = response.status().as_u16();
    assert!([200, 204, 400, 403, 404, 405].contains(&status), "{status} for {text}");
    let body = to_bytes(response.into_body(), usize::MAX).now_or_never().expect("it is whole").expect("bytes");
    assert!(body.is_empty() || serde_json::from_slice::<serde_json::Value>(&body).is_ok(), "{body:?}");
}
