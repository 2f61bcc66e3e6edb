//! Every line of the log is bounded: a flood of what causes it is few lines. A line without a row here fails.

mod clients;
mod outages;
mod setup;
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
use tollgate::RateLimitLayer;
use tower::ServiceExt;
use tracing::Level;

use crate::support::log::Log;

/// How often each line is caused.
const FLOOD: usize = 500;

/// The lines of a policy or a store in 10 s: ten, or one a second.
const BOUND: u64 = 11;

/// A code of the log, and what causes it.
type Row = (&'static str, Cause);

#[derive(Clone, Copy)]
enum Cause {
    /// Clients, the store or the application's closures, as often as this.
    Flood(fn()),
    /// A primary of a Redis Cluster: that file has the test.
    Cluster(&'static str),
    /// Whoever connects a store, drops it, or replaces policies.
    Operator,
}

/// What no request causes, and what needs a Cluster.
const OTHERS: [Row; 9] = [
    ("file_read", Cause::Operator),
    ("file_refused", Cause::Operator),
    ("primary_available", Cause::Cluster("breakers.rs")),
    ("primary_unavailable", Cause::Cluster("breakers.rs")),
    ("scripts_later", Cause::Operator),
    ("settings_stay", Cause::Operator),
    ("slots_unknown", Cause::Cluster("breakers.rs")),
    ("status_left_out", Cause::Operator),
    ("units_leased", Cause::Operator),
];

/// Checks that the floods of these rows are few lines each.
fn assert_bounded(rows: &[Row]) {
    for (code, cause) in rows {
        let Cause::Flood(flood) = cause else { continue };
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
async fn send(app: &Router, requests: impl IntoIterator<Item = Request<Body>>) {
    for request in requests {
        let Ok(response) = app.clone().oneshot(request).await;
        drop(response);
    }
}

/// Sends so many requests, each of another user.
async fn send_many(layer: &RateLimitLayer) {
    send(&app(layer), (0..FLOOD).map(|number| request(&number.to_string()))).await;
}

fn app(layer: &RateLimitLayer) -> Router {
    Router::new().route("/", get(|| async { "hello" })).layer(layer.clone())
}

fn request(user: &str) -> Request<Body> {
    let peer = ConnectInfo(std::net::SocketAddr::from(([10, 0, 0, 1], 4_711)));
    Request::get("/").header("x-user", user).extension(peer).body(Body::empty()).expect("a request")
}

fn rows() -> impl Iterator<Item = Row> {
    [&clients::ROWS[..], &outages::ROWS, &setup::ROWS, &stores::ROWS, &OTHERS].concat().into_iter()
}

/// The statements of a file that log at `info` or above, each up to its end.
fn statements(text: &str) -> Vec<&str> {
    let starts = ["tracing::info!(", "tracing::warn!(", "tracing::error!("].map(|start| text.match_indices(start));
    starts.into_iter().flatten().map(|(place, _)| &text[place..]).map(statement).collect()
}

/// A statement from its start to the parenthesis that ends it. Texts have their parentheses in pairs.
fn statement(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|letter| {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        letter == ')' && depth == 0
    });
    &text[..end.expect("it ends")]
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
    files(&root.join("src"), &mut sources);
    for name in ["tollgate-config", "tollgate-ratio", "tollgate-shed"] {
        files(&root.join("crates").join(name).join("src"), &mut sources);
    }
    let mut logged = BTreeSet::new();
    for path in sources {
        let text = fs::read_to_string(&path).expect("it is text");
        for statement in statements(&text) {
            let code = statement.split_once("code = \"").and_then(|(_, code)| code.split_once('"'));
            logged.insert(code.unwrap_or_else(|| panic!("no code: {}: {statement}", path.display())).0.to_owned());
        }
    }
    let rows: BTreeSet<String> = rows().map(|(code, _)| code.to_owned()).collect();
    assert_eq!(logged, rows);
    let page = fs::read_to_string(root.join("docs/troubleshooting.md")).expect("it is text");
    for code in rows {
        assert!(page.contains(&format!("`{code}`")) || page.contains(&format!("## {code}\n")), "{code}");
    }
}

#[test]
fn lines_of_a_cluster_have_their_test_there() {
    let cluster = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis/cluster");
    for (code, cause) in rows() {
        let Cause::Cluster(file) = cause else { continue };
        assert!(fs::read_to_string(cluster.join(file)).expect("it is text").contains(code), "{code}: {file}");
    }
}
