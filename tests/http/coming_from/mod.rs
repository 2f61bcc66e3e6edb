//! Limits of other systems, and those by which docs/coming-from.md replaces them, under the same requests.

mod crates;
mod express;
mod governors;
mod nginx;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, UNIX_EPOCH};
use std::{fs, io, thread};

use axum::Router;
use axum::routing::get;
use futures::future::join_all;
use http::StatusCode;
use tokio::time::{Instant, sleep_until};
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};

use crate::sockets::Http;

const PAGE: &str = include_str!("../../../docs/coming-from.md");
const SECOND: Duration = Duration::from_secs(1);

/// Half the time in which one unit returns to most limits here, whose requests are sent in between.
const HALF: Duration = Duration::from_millis(250);
const TOLERANCE: Duration = Duration::from_millis(110);
/// How long attempts are begun on a machine that is too busy for them.
const PATIENCE: Duration = Duration::from_secs(120);

/// Expects the page to have a row that begins with these two cells.
#[track_caller]
fn row(theirs: &str, ours: &str) {
    let row = format!("\n| `{theirs}` | `{ours}` |");
    assert!(PAGE.contains(&row), "the page lacks {row}");
}

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// An app that limits each client by address.
fn limited(quota: Quota) -> Router {
    let policy = Policy::new("api", quota).key(key::client_ip());
    hello().layer(RateLimitLayer::new(MemoryStore::new(), policy))
}

/// The requests of a batch that were served, by the halves since the start in which they were.
type Served = Vec<u32>;

/// Sends as many requests at once as each batch has, that many halves after the start, to both, from an address that is
/// new to both. `None` if the machine was too busy to do that in time.
async fn attempt(start: Instant, uris: [&str; 2], batches: &[(u32, usize)], client: &str) -> Option<[Vec<Served>; 2]> {
    let http = &Http::from(client);
    let send = async |uri: &str, at: u32| {
        sleep_until(start + HALF * at).await;
        let status = http.get(uri.to_owned()).await.status();
        let took = start.elapsed();
        let halves = u32::try_from((took + HALF / 2).as_millis() / HALF.as_millis()).expect("some seconds");
        // Nobody waits for a denial: it shows that its batch was decided in time.
        let served = (status == StatusCode::OK).then_some(halves);
        let is_in_time = took.abs_diff(HALF * halves) < TOLERANCE && (served.is_some() || halves == at);
        is_in_time.then_some(served)
    };
    let send = &send;
    let sides = uris.map(|uri| async move {
        let batches = batches.iter().map(|(at, count)| join_all((0..*count).map(move |_| send(uri, *at))));
        join_all(batches).await.into_iter().map(|batch| {
            let mut served: Served = batch.into_iter().collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
            served.sort_unstable();
            Some(served)
        })
    });
    let [theirs, ours] = sides;
    let (theirs, ours) = tokio::join!(theirs, ours);
    Some([theirs.collect::<Option<Vec<_>>>()?, ours.collect::<Option<Vec<_>>>()?])
}

/// Which requests of each batch both serve, and when.
async fn both(uris: [&str; 2], batches: &[(u32, usize)]) -> [Vec<Served>; 2] {
    both_from(Duration::from_nanos(1), uris, batches).await
}

/// The same, which starts at a multiple of a time since the Unix epoch.
async fn both_from(multiple: Duration, uris: [&str; 2], batches: &[(u32, usize)]) -> [Vec<Served>; 2] {
    static CLIENTS: AtomicU16 = AtomicU16::new(10);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let since = UNIX_EPOCH.elapsed().expect("it is after 1970").as_nanos() % multiple.as_nanos();
        let start = Instant::now() + multiple - Duration::from_nanos(u64::try_from(since).expect("a few seconds"));
        let [high, low] = CLIENTS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let client = format!("127.0.{high}.{low}");
        if let Some(served) = attempt(start, uris, batches, &client).await {
            return served;
        }
    }
    panic!("the machine is too busy for requests on time, for {PATIENCE:?}");
}

/// How many requests of each batch are served, by both at the same times.
async fn alike(uris: [&str; 2], batches: &[(u32, usize)]) -> Vec<usize> {
    let [theirs, ours] = both(uris, batches).await;
    assert_eq!(theirs, ours, "{}", uris[0]);
    ours.iter().map(Vec::len).collect()
}

/// A server of another system, which prints its ports in the first line. It is stopped when dropped.
struct Other {
    process: Child,
    ports: Vec<u16>,
}

impl Other {
    fn start(command: &mut Command) -> Self {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = started.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (mut out, (sender, receiver)) = (BufReader::new(process.stdout.take().expect("it is piped")), channel());
        thread::spawn(move || {
            let mut line = String::new();
            let _ = out.read_line(&mut line).map(|_| sender.send(line));
        });
        let line = receiver.recv_timeout(20 * SECOND).unwrap_or_default();
        let ports = line.split_whitespace().map(|port| port.parse().expect("a port")).collect();
        let other = Self { process, ports };
        assert!(!other.ports.is_empty(), "it does not start: {command:?}");
        other
    }

    fn uri(&self, place: usize) -> String {
        format!("http://127.0.0.1:{}/", self.ports[place])
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder with these files, which stays for the next run.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let write = |(file, text): &(&str, &str)| -> io::Result<()> {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().expect("it is in a folder"))?;
        if fs::read_to_string(&path).is_ok_and(|there| there == *text) { Ok(()) } else { fs::write(path, text) }
    };
    files.iter().try_for_each(write).expect("the folder of the tests can be written");
    folder
}

/// Runs what installs or builds another system.
#[track_caller]
fn run(command: &mut Command) {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
}
