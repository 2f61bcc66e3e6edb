//! A process that checks keys on a Redis it shares with others.
//!
//! It connects, makes some checks and prints a line. It receives the moment to start, checks for a while, and prints
//! how many checks it made, how many a second, and the processor time of each.

use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use tollgate::RedisStore;
use tollgate::deadpool_redis::redis::Client;

use super::sides::{incr, stored};
use crate::effort::Effort;
use crate::load::Entrant;
use crate::server::patient;

/// The first argument of a process, after `growth`.
pub(super) const PROCESS: &str = "process";

/// Keys that are checked before anything is measured: connections are open, and scripts are known, after them.
const FIRST: usize = 64;

/// The longest that its owner waits for a process.
const PATIENCE: Duration = Duration::from_secs(30);

/// The sides, by the argument that names them.
pub(super) const STORE: &str = "store";
pub(super) const INCR: &str = "incr";

/// What a process did.
pub(super) struct Checks {
    pub(super) count: f64,
    pub(super) per_second: f64,
    /// Of its own processor time, for each check.
    pub(super) cpu_us: f64,
}

/// A process, as its owner sees it. It ends with its owner.
pub(super) struct Process {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    child: Child,
}

impl Process {
    /// Starts a process of a side and waits until it has connected.
    pub(super) async fn start(side: &str, url: &str, in_flight: usize, keys: usize) -> Self {
        let program = std::env::current_exe().expect("this program is a file");
        let mut command = Command::new(program);
        command.args(["growth", PROCESS, side, url, &in_flight.to_string(), &keys.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("this program can be started");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut process = Self { input, output, child };
        assert_eq!(process.line().await, "ready", "{side} did not start");
        process
    }

    /// Lets it check for some time from a moment on.
    pub(super) async fn load(mut self, start: SystemTime, span: Duration, round: usize) -> Checks {
        let start = start.duration_since(UNIX_EPOCH).expect("it is later").as_micros();
        let orders = format!("{start} {} {round}\n", span.as_micros());
        self.input.write_all(orders.as_bytes()).await.expect("it runs");
        let line = self.line().await;
        let numbers: Vec<f64> = line.split(' ').map(|number| number.parse().expect("a number")).collect();
        let [count, per_second, cpu_us] = numbers[..] else { panic!("not three numbers: {line}") };
        drop(self.input);
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it has not stopped").expect("it ends");
        assert!(status.success(), "a process failed");
        Checks { count, per_second, cpu_us }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(PATIENCE, self.output.read_line(&mut line)).await.expect("it has not stopped").expect("it is text");
        line.trim().to_owned()
    }
}

/// What a process does.
pub(super) async fn run(arguments: &[String]) {
    let [side, url, in_flight, keys] = arguments else { crate::usage() };
    let [in_flight, keys] = [in_flight, keys].map(|number| number.parse().unwrap_or_else(|_| crate::usage()));
    let (side, url) = (side.clone(), url.clone());
    // One thread does as a small server would.
    let process = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(serve(&side, &url, in_flight, keys));
        // The owner has all that it wants; what the store would still return can stay.
        std::process::exit(0);
    });
    let _ = tokio::task::spawn_blocking(|| process.join()).await;
    // It did not get to its own end: it panicked.
    std::process::exit(1);
}

async fn serve(side: &str, url: &str, in_flight: usize, keys: usize) {
    let entrant = entrant(side, url, keys).await;
    entrant.warm(Effort { keys: FIRST, ..Effort::QUICK }).await;
    println!("ready");
    let (start, span, round) = tokio::task::spawn_blocking(read_orders).await.expect("it reads");
    sleep(start.duration_since(SystemTime::now()).unwrap_or_default()).await;
    let sample = entrant.measure(Effort { span, keys, ..Effort::QUICK }, in_flight, round).await;
    println!("{} {} {}", sample.count, sample.per_second, sample.cpu_us);
}

async fn entrant(side: &str, url: &str, keys: usize) -> Entrant {
    if side == INCR {
        let client = Client::open(url).expect("a URL");
        let connection = client.get_multiplexed_async_connection_with_config(&patient()).await;
        return Entrant::new(INCR, incr(connection.expect("the server answers"), keys));
    }
    let builder = RedisStore::builder().timeout(Duration::from_secs(5));
    Entrant::new(STORE, stored(builder.connect(url).await.expect("the server answers"), keys))
}

fn read_orders() -> (SystemTime, Duration, usize) {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("it is text");
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    // Without orders its owner has ended.
    let [start, span, round] = numbers[..] else { std::process::exit(1) };
    let round = usize::try_from(round).expect("it is small");
    (UNIX_EPOCH + Duration::from_micros(start), Duration::from_micros(span), round)
}
