//! Every line of the log is bounded: a flood of what causes it is few lines. A line without a row here fails.

mod clients;
mod outages;
mod stores;

use std::collections::BTreeSet;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::Request;
use tollgate::{MemoryStore, Policy, RateLimitLayer};
use tower::ServiceExt;
use tracing::Level;

use crate::support::log::Log;

/// How often each line is caused.
const FLOOD: usize = 500;

/// The lines of a policy or a store in 10 s: ten, or one a second.
const BOUND: u64 = 11;

/// A code of the log, and what causes it: clients, the store or the application's closures.
type Row = (&'static str, fn());

/// What only whoever connects a store, drops it or replaces policies causes.
const OPERATORS: [&str; 6] =
    ["file_invalid", "file_read", "scripts_later", "settings_stay", "status_left_out", "units_leased"];

/// What a wrong set-up causes: `http/warnings` has the tests.
const WARNINGS: [&str; 8] = ["TG001", "TG002", "TG003", "TG004", "TG005", "TG006", "TG007", "TG008"];

/// What primaries of a Redis Cluster cause: `redis/cluster/breakers.rs` has the test.
const CLUSTERS: [&str; 3] = ["primary_available", "primary_unavailable", "slots_unknown"];

/// Checks that the floods of these rows are few lines each.
fn assert_bounded(rows: &[Row]) {
    for (code, flood) in rows {
        let (log, began) = (Log::default(), Instant::now());
        let noting = log.note(Level::INFO);
        let lines = || u64::try_from(log.count(&format!("code=\"{code}\""))).expect("few");
        // A line that is bounded for the process may be another test's at first.
        while lines() == 0 && began.elapsed() < Duration::from_secs(20) {
            flood();
        }
        drop(noting);
        // A flood may begin at the end of a period.
        let (lines, periods) = (lines(), began.elapsed().as_secs() / 10 + 2);
        assert!((1..=BOUND * periods).contains(&lines), "{code}: {lines} lines in {:?}", began.elapsed());
    }
}

/// Runs a flood on the paused time of a runtime of its own.
fn run(flood: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(flood);
}

/// Sends these requests, one after the other.
async fn send(app: Router, requests: impl IntoIterator<Item = Request<Body>>) {
    for request in requests {
        let Ok(response) = app.clone().oneshot(request).await;
        drop(response);
    }
}

/// Sends a request of each of many users, and again.
async fn send_twice(layer: RateLimitLayer) {
    send(app(&layer), (0..2 * FLOOD).map(|number| request(&(number % FLOOD).to_string()))).await;
}

/// The same through a layer with one policy.
fn flood(policy: Policy) {
    run(send_twice(RateLimitLayer::new(MemoryStore::new(), policy)));
}

fn app(layer: &RateLimitLayer) -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(layer.clone())
}

fn request(user: &str) -> Request<Body> {
    let peer = ConnectInfo(std::net::SocketAddr::from(([10, 0, 0, 1], 4_711)));
    Request::get("/").header("x-user", user).extension(peer).body(Body::empty()).expect("a request")
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[test]
fn every_line_of_the_crate_has_a_code_and_a_row_and_is_in_the_page() {
    let (root, mut sources) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), Vec::new());
    for folder in ["src", "crates/tollgate-config/src", "crates/tollgate-ratio/src", "crates/tollgate-shed/src"] {
        files(&root.join(folder), &mut sources);
    }
    let mut logged = BTreeSet::new();
    for path in sources {
        let text = fs::read_to_string(&path).expect("it is text");
        let is_seen = |line: &&str| ["info!(", "warn!(", "error!("].iter().any(|level| line.starts_with(level));
        for statement in text.split("tracing::").skip(1).filter(is_seen) {
            let fields = statement.split(';').next();
            let code = fields.and_then(|fields| fields.split_once("code = \"")?.1.split('"').next());
            logged.insert(code.unwrap_or_else(|| panic!("no code: {}: {statement}", path.display())).to_owned());
        }
    }
    let flooded = [&clients::ROWS[..], &outages::ROWS, &stores::ROWS].concat();
    let rows = flooded.into_iter().map(|(code, _)| code).chain(OPERATORS).chain(WARNINGS).chain(CLUSTERS);
    assert_eq!(logged, rows.map(str::to_owned).collect());
    let page = fs::read_to_string(root.join("docs/troubleshooting.md")).expect("it is text");
    for code in logged {
        assert!(page.contains(&format!("`{code}`")) || page.contains(&format!("## {code}\n")), "{code}");
    }
}
