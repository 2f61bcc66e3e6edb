//! What happened, in order.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// What happened in a run: its hash always, its lines if they are kept.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    hash: Hash,
    lines: Option<Vec<String>>,
    commands: Vec<Vec<Bytes>>,
    /// How often each kind of thing was met.
    pub met: BTreeMap<&'static str, u64>,
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
    pub(super) fn new(keeps_lines: bool) -> Self {
        let (start, hash) = (Instant::now(), Hash(0xcbf2_9ce4_8422_2325));
        Self { start, hash, lines: keeps_lines.then(Vec::new), commands: Vec::new(), met: BTreeMap::new() }
    }

    /// Notes an event.
    pub(super) fn say(&mut self, event: fmt::Arguments<'_>) {
        let micros = self.elapsed().as_micros();
        let _ = writeln!(self.hash, "{micros} {event}");
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>7}.{:03} ms  {event}", micros / 1_000, micros % 1_000));
        }
    }

    /// Notes a command that ran on a server.
    pub(super) fn ran(&mut self, command: &[Bytes]) {
        if self.lines.is_some() {
            self.commands.push(command.to_vec());
        }
    }

    /// Notes that a kind of thing was met.
    pub(super) fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    /// Since the run began.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// A number that two runs share if the same happened in both.
    pub fn hash(&self) -> u64 {
        self.hash.0
    }

    /// The commands that ran on servers, if lines were kept.
    pub fn commands(&self) -> &[Vec<Bytes>] {
        &self.commands
    }

    /// The lines, if they were kept.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}

/// What can be read of a command.
pub(super) fn shown(command: &[Bytes]) -> String {
    let parts = command.iter().take(5).map(|part| part[..part.len().min(48)].escape_ascii().to_string());
    parts.collect::<Vec<_>>().join(" ")
}
