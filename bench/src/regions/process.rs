//! One process of a region, and the hand that its owner has on it.
//!
//! It connects and prints a line. It receives the moment to start, sends requests at the times of its load, whatever
//! becomes of them, and prints what became of them by the second.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, sleep_until};
use tollgate::Source;

use super::figures::Second;
use super::load::{Arrivals, LOADS};
use super::sides::{Gate, SIDES};
use super::{LIMIT, PROCESS};

/// What the last requests may take.
const END: Duration = Duration::from_millis(800);

/// A process, as its owner sees it. It ends with its owner.
pub(super) struct Process {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _child: Child,
}

impl Process {
    /// Starts a process and waits until it has connected.
    pub(super) async fn start(side: &str, load: usize, region: u32, urls: &str) -> Self {
        let program = std::env::current_exe().expect("this program is a file");
        let mut command = Command::new(program);
        command.args(["regions", PROCESS, side, &load.to_string(), &region.to_string(), urls]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("this program can be started");
        let input = child.stdin.take().expect("it is piped");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).await.expect("it is text");
        assert_eq!(line, "ready\n", "{side} did not start");
        Self { input, output, _child: child }
    }

    /// Sends requests for some seconds from a moment on; returns what became of them.
    pub(super) async fn load(mut self, start: SystemTime, seconds: usize, seed: u64) -> Vec<Second> {
        let start = start.duration_since(UNIX_EPOCH).expect("it is later").as_micros();
        let orders = format!("{start} {seconds} {seed}\n");
        self.input.write_all(orders.as_bytes()).await.expect("it runs");
        let mut text = String::new();
        self.output.read_to_string(&mut text).await.expect("it is text");
        let figures: Vec<_> = text.lines().map(Second::parse).collect();
        assert_eq!(figures.len(), seconds, "the process ended early");
        figures
    }
}

/// What a process does.
pub(super) async fn run(arguments: &[String]) {
    let [side, load, region, urls] = arguments else { crate::usage() };
    let side = SIDES.into_iter().find(|known| known.name == side).unwrap_or_else(|| crate::usage());
    let [load, region]: [u32; 2] = [load, region].map(|number| number.parse().unwrap_or_else(|_| crate::usage()));
    let rate = LOADS[load as usize].rate(region);
    let urls = urls.clone();
    // One thread does as a small server would.
    let process = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let gate = Gate::of(side, region, &urls, LIMIT).await;
            println!("ready");
            let orders = tokio::task::spawn_blocking(read_orders).await.expect("it reads");
            for second in offer(gate, rate, orders).await {
                println!("{second}");
            }
        });
        // The owner has all that it wants; what the store would still return can stay.
        std::process::exit(0);
    });
    let _ = tokio::task::spawn_blocking(|| process.join()).await;
}

struct Orders {
    start: SystemTime,
    seconds: usize,
    seed: u64,
}

fn read_orders() -> Orders {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("it is text");
    // Without this the process would outlive an owner that was killed.
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().expect("a number")).collect();
    let [start, seconds, seed] = numbers[..] else { std::process::exit(0) };
    let seconds = usize::try_from(seconds).expect("it is small");
    Orders { start: UNIX_EPOCH + Duration::from_micros(start), seconds, seed }
}

/// Sends the requests, and returns what became of them.
async fn offer(gate: Gate, rate: f64, orders: Orders) -> Vec<Second> {
    let start = Instant::now() + orders.start.duration_since(SystemTime::now()).unwrap_or_default();
    let (gate, seconds) = (Arc::new(gate), Arc::new(Mutex::new(vec![Second::default(); orders.seconds])));
    fastrand::seed(orders.seed);
    let end = Duration::from_secs(orders.seconds as u64);
    for at in Arrivals::new(rate, orders.seed).take_while(|&at| at < end) {
        if start + at > Instant::now() {
            sleep_until(start + at).await;
        }
        tokio::spawn(request(Arc::clone(&gate), start, Instant::now(), Arc::clone(&seconds)));
    }
    sleep(END).await;
    let mut seconds = seconds.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut seconds)
}

/// Makes one request, and notes it in the second it was sent, or admitted.
async fn request(gate: Arc<Gate>, start: Instant, sent: Instant, seconds: Arc<Mutex<Vec<Second>>>) {
    let decision = gate.check().await;
    let (took, second) = (sent.elapsed(), |at: Instant| usize::try_from((at - start).as_secs()).unwrap_or_default());
    let is_allowed = decision.as_ref().is_none_or(tollgate::Decision::is_allowed);
    let by_share = decision.is_some_and(|decision| decision.source() == Source::Fallback);
    let mut seconds = seconds.lock().unwrap_or_else(PoisonError::into_inner);
    if is_allowed && let Some(admitting) = seconds.get_mut(second(sent + took)) {
        admitting.admitted += 1;
    }
    if let Some(sending) = seconds.get_mut(second(sent)) {
        sending.note(took, is_allowed, by_share);
    }
}
