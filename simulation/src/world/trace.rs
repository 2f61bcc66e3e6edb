//! What happened, in order.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

use tokio::time::Instant;

/// What happened in a run: its hash always, its lines if they are kept.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    hash: Hash,
    lines: Option<Vec<String>>,
    events: u64,
    met: BTreeMap<&'static str, u64>,
}

/// FNV-1a, which is the same everywhere.
#[derive(Debug)]
struct Hash(u64);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

impl Trace {
    /// A trace that begins now, and keeps its lines if they are wanted.
    pub fn new(keeps_lines: bool) -> Self {
        let lines = keeps_lines.then(Vec::new);
        Self { start: Instant::now(), hash: Hash(0xcbf2_9ce4_8422_2325), lines, events: 0, met: BTreeMap::new() }
    }

    /// Notes an event.
    pub fn say(&mut self, event: fmt::Arguments<'_>) {
        let micros = self.elapsed().as_micros();
        self.events += 1;
        let _ = writeln!(self.hash, "{micros} {event}");
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>7}.{:03} ms  {event}", micros / 1_000, micros % 1_000));
        }
    }

    /// Notes that a kind of fault was met.
    pub fn meet(&mut self, fault: &'static str) {
        *self.met.entry(fault).or_default() += 1;
    }

    /// Since the run began.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// A number that two runs share if the same happened in both.
    pub fn hash(&self) -> u64 {
        self.hash.0
    }

    /// How many events there were.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How often each kind of fault was met.
    pub fn met(&self) -> &BTreeMap<&'static str, u64> {
        &self.met
    }

    /// The lines, if they were kept.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}
