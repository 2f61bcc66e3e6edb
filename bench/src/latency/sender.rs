//! The process that sends requests, each at its moment.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZero;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::thread::set_current_timer_slack;

use crate::http::{HEADER, Runner};

/// The first argument of the process, after `latency`.
pub(super) const SEND: &str = "send";

const CONNECTIONS: usize = 64;

/// Keys, of which the sender draws each as often.
const KEYS: usize = 100_000;

/// What every side answers.
const BODY: &[u8] = b"hello";

/// What is sent before the requests that count, while the server and the system become used to the load.
const LEAD: Duration = Duration::from_millis(300);

/// The longest wait for any answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which requests are sent.
#[derive(Clone, Copy)]
pub(super) enum Load {
    /// One of each key, so that all are in use.
    Walk,
    /// The next on each connection when the last is answered.
    Most,
    /// So many a second, at random moments that do not depend on the answers.
    Rate(f64),
}

/// What the process saw.
pub(super) struct Sent {
    pub(super) per_second: f64,
    /// p50, p99 and p99.9 in microseconds.
    pub(super) latency: [f64; 3],
    /// How much later than due the median request was sent, in microseconds.
    pub(super) late_us: f64,
}

/// Lets a process send a load to a side.
pub(super) fn send(runner: &Runner, load: Load, span: Duration, seed: u64) -> Result<Sent, String> {
    let load = match load {
        Load::Walk => "walk".to_owned(),
        Load::Most => "most".to_owned(),
        Load::Rate(rate) => rate.to_string(),
    };
    let program = std::env::current_exe().map_err(|fault| fault.to_string())?;
    let mut command = Command::new(program);
    command.args(["latency", SEND, &runner.address.to_string(), &load, &span.as_millis().to_string()]);
    let header = runner.side.answers.headers.first().copied().unwrap_or_default();
    command.args([&*seed.to_string(), header]).stderr(Stdio::inherit());
    let output = command.output().map_err(|fault| fault.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers: Vec<f64> = text.split_whitespace().map_while(|number| number.parse().ok()).collect();
    let &[per_second, p50, p99, p999, late_us] = &numbers[..] else {
        return Err(format!("{} at a load of {load}: that is no measurement", runner.side.name));
    };
    Ok(Sent { per_second, latency: [p50, p99, p999], late_us })
}

/// What the process does.
pub(super) fn run(arguments: &[String]) {
    let [address, load, span, seed, proof] = arguments else { crate::usage() };
    let load = match load.as_str() {
        "walk" => Load::Walk,
        "most" => Load::Most,
        rate => Load::Rate(rate.parse().unwrap_or_else(|_| crate::usage())),
    };
    let span = Duration::from_millis(span.parse().unwrap_or_else(|_| crate::usage()));
    let rng = Rng::with_seed(seed.parse().unwrap_or_else(|_| crate::usage()));
    let address = address.parse().unwrap_or_else(|_| crate::usage());
    let sender = Sender::new(address, load, rng, proof).and_then(|sender| sender.run(span));
    match sender {
        Ok(mut sample) => {
            let [p50, p99, p999] = [500, 990, 999].map(|part| at(&mut sample.latencies, part));
            println!("{} {p50} {p99} {p999} {}", sample.per_second, at(&mut sample.late, 500));
        }
        Err(fault) => {
            eprintln!("{fault}");
            std::process::exit(1);
        }
    }
}

/// A quantile in microseconds, by thousandths.
fn at(nanos: &mut [u64], part: usize) -> f64 {
    let place = (nanos.len() * part / 1_000).min(nanos.len() - 1);
    let (_, value, _) = nanos.select_nth_unstable(place);
    *value as f64 / 1e3
}

/// In nanoseconds.
#[derive(Default)]
struct Sample {
    latencies: Vec<u64>,
    late: Vec<u64>,
    per_second: f64,
}

struct Connection {
    stream: TcpStream,
    /// When the request in flight was due.
    due: Instant,
    answer: Vec<u8>,
}

struct Sender<'a> {
    connections: Vec<Connection>,
    free: VecDeque<usize>,
    epoll: OwnedFd,
    load: Load,
    rng: Rng,
    /// A header of every answer.
    proof: &'a str,
    sent: usize,
}

impl<'a> Sender<'a> {
    fn new(address: SocketAddr, load: Load, rng: Rng, proof: &'a str) -> io::Result<Self> {
        // A wait may otherwise end 50 µs later than it was asked to.
        set_current_timer_slack(NonZero::new(1))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::new();
        for number in 0..CONNECTIONS {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
            connections.push(Connection { stream, due: Instant::now(), answer: Vec::new() });
        }
        Ok(Self { connections, free: (0..CONNECTIONS).collect(), epoll, load, rng, proof, sent: 0 })
    }

    fn run(mut self, span: Duration) -> io::Result<Sample> {
        let start = Instant::now() + LEAD;
        let end = start + span;
        let (mut sample, mut waiting, mut due) = (Sample::default(), VecDeque::new(), Instant::now());
        let mut events = Vec::with_capacity(CONNECTIONS);
        loop {
            let now = Instant::now();
            let is_over = match self.load {
                Load::Walk => {
                    waiting.extend((self.sent..KEYS).take(self.free.len()).map(|_| now));
                    self.sent + waiting.len() == KEYS
                }
                Load::Most => {
                    waiting.extend(self.free.iter().filter(|_| now < end).map(|_| now));
                    now >= end
                }
                Load::Rate(rate) => {
                    while due <= now && due < end {
                        waiting.push_back(due);
                        due += Duration::from_secs_f64(-(1.0 - self.rng.f64()).ln() / rate);
                    }
                    due >= end
                }
            };
            while let Some(number) = self.free.front().copied()
                && let Some(due) = waiting.pop_front()
            {
                self.free.pop_front();
                let late = self.send(number, due)?;
                if due >= start {
                    sample.late.push(nanos(late));
                }
            }
            if is_over && waiting.is_empty() && self.free.len() == CONNECTIONS {
                break;
            }
            let is_timed = matches!(self.load, Load::Rate(_)) && !is_over;
            let wait = if is_timed { due.saturating_duration_since(Instant::now()) } else { PATIENCE };
            let wait = wait.try_into().map_err(io::Error::other)?;
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&wait))?;
            if events.is_empty() && !is_timed {
                return Err(io::Error::other("an answer did not come in time"));
            }
            for event in events.drain(..) {
                let number = usize::try_from(event.data.u64()).expect("it was a usize");
                if let Some((due, now)) = self.receive(number)?
                    && (due >= start || matches!(self.load, Load::Walk))
                {
                    sample.latencies.push(nanos(now - due));
                }
            }
        }
        sample.per_second = sample.latencies.len() as f64 / start.elapsed().as_secs_f64();
        Ok(sample)
    }

    /// Sends the next request; returns how late it is.
    fn send(&mut self, number: usize, due: Instant) -> io::Result<Duration> {
        let key = 100_000 + if let Load::Walk = self.load { self.sent } else { self.rng.usize(..KEYS) };
        let request = format!("GET / HTTP/1.1\r\nHost: bench\r\n{HEADER}: key-{key}\r\n\r\n");
        let connection = &mut self.connections[number];
        connection.due = due;
        let late = due.elapsed();
        connection.stream.write_all(request.as_bytes())?;
        self.sent += 1;
        Ok(late)
    }

    /// Reads what is there; if that ends an answer, returns when its request was due and the time now.
    fn receive(&mut self, number: usize) -> io::Result<Option<(Instant, Instant)>> {
        let Connection { stream, due, answer } = &mut self.connections[number];
        let mut buffer = [0; 2_048];
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => answer.extend_from_slice(&buffer[..read]),
        }
        if !answer.ends_with(BODY) {
            return Ok(None);
        }
        let now = Instant::now();
        let head = String::from_utf8_lossy(answer);
        if !head.starts_with("HTTP/1.1 200 ") || !(self.proof.is_empty() || head.contains(self.proof)) {
            return Err(io::Error::other(format!("unequal work: {head}")));
        }
        answer.clear();
        self.free.push_back(number);
        Ok(Some((*due, now)))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a request ends in time")
}
