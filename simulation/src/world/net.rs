//! The connections between clients and servers, and what goes wrong on them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::plan::Mishap;
use super::trace::shown;
use super::{State, World};
use crate::server::{Faults, Node, ReadOnly, Reply, Session, read_command};

/// The port of the first node.
pub(super) const FIRST_PORT: u16 = 7_000;

/// Bytes on their way in one direction at most.
const BUFFER: usize = 1 << 20;

/// For so long replies that are late are surely read, less the time of one.
const LATE: Duration = Duration::from_secs(8);

/// Errors by which servers say that they ran nothing.
const REFUSALS: [&str; 10] =
    ["READONLY", "LOADING", "NOSCRIPT", "OOM", "MOVED", "ASK", "TRYAGAIN", "BUSY", "CLUSTERDOWN", "WRONGPASS"];

/// A server, and what is wrong with it.
pub(super) struct Server {
    pub(super) node: Node,
    pub(super) is_up: bool,
    /// It does not come back.
    pub(super) is_lost: bool,
    pub(super) frozen_until: Option<Instant>,
    pub(super) slow_ms: u64,
    pub(super) mishaps: VecDeque<Mishap>,
}

impl Server {
    pub(super) fn new(node: Node) -> Self {
        Self { node, is_up: true, is_lost: false, frozen_until: None, slow_ms: 0, mishaps: VecDeque::new() }
    }

    fn is_troubled(&self) -> bool {
        let Faults { read_only, loading, out_of_memory, busy, cluster_down, password: _ } = &self.node.fault;
        let refuses = read_only.is_some() || *loading || *out_of_memory || *busy || *cluster_down;
        let is_frozen = self.frozen_until.is_some_and(|until| until > Instant::now());
        refuses || is_frozen || !self.is_up && !self.is_lost || self.slow_ms > 0
    }
}

/// A connection.
pub(super) struct Connection {
    pub(super) node: usize,
    /// Ends it.
    pub(super) cut: Arc<Notify>,
    /// Nothing passes any more.
    pub(super) is_swallowed: bool,
    /// It leads to a replica.
    pub(super) is_demoted: Option<ReadOnly>,
    /// Since when a call has been on its way whose reply was not sent, if one is.
    owes: Option<Instant>,
}

/// What becomes of a command.
enum Answer {
    /// This, after so long; then the rest after so long.
    Sent(Duration, Vec<u8>, Option<(Duration, Vec<u8>)>),
    /// This, and the connection ends.
    Cut(Vec<u8>),
    /// Nothing.
    Silence,
}

impl Mishap {
    fn name(self) -> &'static str {
        match self {
            Self::CutBefore => "cut before a call ran",
            Self::CutAfter => "cut after a call ran",
            Self::Half => "half a reply",
            Self::Pause(_) => "a pause within a reply",
            Self::StrayBytes => "bytes that are a reply to nothing",
            Self::Stray => "a reply to nothing",
            Self::Late(_) => "a late reply",
        }
    }
}

/// Whether a command is one of tollgate's calls.
fn is_call(command: &[Bytes]) -> bool {
    let name = command.first().map(|name| name.to_ascii_uppercase());
    matches!(name.as_deref(), Some(b"EVALSHA" | b"EVAL")) && command.get(2).is_some_and(|keys| keys != "0")
}

impl State {
    /// Whether something is wrong now for which requests may fail.
    pub(super) fn is_troubled(&self) -> bool {
        let is_odd = |connection: &Connection| connection.is_swallowed || connection.is_demoted.is_some();
        self.nodes.iter().any(Server::is_troubled)
            || self.connections.values().any(is_odd)
            || self.password.0 != self.password.1
    }

    /// How long the next step of a node takes.
    fn delay(&mut self, node: usize) -> Duration {
        let slow = self.nodes.get(node).map_or(0, |node| node.slow_ms);
        let most = if slow > 0 { slow } else { [0, 0, 1, 3][self.rng.usize(..4)] };
        Duration::from_millis(self.rng.u64(..=most))
    }

    /// Runs a command that came over a connection.
    fn execute(&mut self, number: u64, node: usize, session: &mut Session, command: &[Bytes]) -> Vec<u8> {
        let demoted = self.connections.get(&number).and_then(|connection| connection.is_demoted);
        if demoted.is_some() {
            self.trace.meet("a connection to what became a replica");
        }
        let now_us = self.clock_us(Instant::now());
        let server = &mut self.nodes[node].node;
        let before = server.fault.read_only;
        server.fault.read_only = demoted.or(before);
        let reply = server.execute(session, command, now_us);
        server.fault.read_only = before;
        self.trace.ran(command);
        let mut out = Vec::new();
        reply.write(&mut out);
        let line = out.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let answer = line[..line.len().min(80)].escape_ascii();
        self.trace.say(format_args!("connection {number}: {}-> {answer}", shown(command)));
        if let Reply::Error(text) = &reply {
            if text.starts_with("CROSSSLOT") {
                self.violate(format_args!("a call has keys of two slots"));
            }
            if let Some(code) = REFUSALS.iter().find(|code| text.contains(*code)) {
                self.trace.meet(code);
            }
        }
        out
    }
}

impl World {
    /// Opens a connection to the node at a port.
    pub(super) async fn dial(self, port: u16) -> io::Result<DuplexStream> {
        let node = usize::from(port.wrapping_sub(FIRST_PORT));
        let delay = self.lock().delay(node);
        sleep(delay).await;
        self.thaw(node).await;
        let mut state = self.lock();
        if state.nodes.get(node).is_none_or(|node| !node.is_up) {
            state.may_fail();
            state.trace.meet("connection refused");
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let ((near, mut far), cut) = (duplex(BUFFER), Arc::new(Notify::new()));
        state.last_connection += 1;
        let (number, session) = (state.last_connection, Session::new(&state.nodes[node].node));
        let (is_swallowed, is_demoted, owes) = (false, None, None);
        let connection = Connection { node, cut: Arc::clone(&cut), is_swallowed, is_demoted, owes };
        state.connections.insert(number, connection);
        state.trace.say(format_args!("connection {number} to node {node}"));
        drop(state);
        let there = There(self.clone(), number);
        tokio::spawn(async move {
            let mut buffer = BytesMut::new();
            let ended = tokio::select! {
                biased;
                () = cut.notified() => Ok(()),
                ended = self.serve(number, node, session, (&mut far, &mut buffer)) => ended,
            };
            // What came and did not run, and what the client does not read that has closed it.
            let _ = timeout(Duration::ZERO, far.read_buf(&mut buffer)).await;
            if ended.is_err() || !buffer.is_empty() {
                self.lock().is_lossy = true;
            }
            drop(there);
        });
        Ok(near)
    }

    async fn serve(
        &self,
        number: u64,
        node: usize,
        mut session: Session,
        (far, buffer): (&mut DuplexStream, &mut BytesMut),
    ) -> io::Result<()> {
        while far.read_buf(buffer).await? > 0 {
            let came = Instant::now();
            while let Some(command) = read_command(buffer) {
                self.lock().owes(number, is_call(&command).then_some(came));
                let delay = self.lock().delay(node);
                sleep(delay).await;
                self.thaw(node).await;
                match self.run(number, node, &mut session, &command) {
                    Answer::Sent(delay, first, rest) => {
                        sleep(delay).await;
                        far.write_all(&first).await?;
                        if let Some((pause, rest)) = rest {
                            sleep(pause).await;
                            far.write_all(&rest).await?;
                        }
                    }
                    Answer::Cut(part) => {
                        let _ = far.write_all(&part).await;
                        return Ok(());
                    }
                    Answer::Silence => continue,
                }
                self.lock().owes(number, None);
            }
        }
        Ok(())
    }

    /// Waits until a node does something again.
    async fn thaw(&self, node: usize) {
        loop {
            let until = self.lock().nodes.get(node).and_then(|node| node.frozen_until);
            match until.filter(|until| *until > Instant::now()) {
                Some(until) => sleep_until(until).await,
                None => return,
            }
        }
    }

    /// Has a node run a command, unless something is in the way.
    fn run(&self, number: u64, node: usize, session: &mut Session, command: &[Bytes]) -> Answer {
        let mut state = self.lock();
        let mishap = if is_call(command) { state.nodes[node].mishaps.pop_front() } else { None };
        if let Some(mishap) = mishap {
            state.meets(number, mishap);
        }
        if mishap == Some(Mishap::CutBefore) {
            return Answer::Cut(Vec::new());
        }
        let reply = state.execute(number, node, session, command);
        if state.connections.get(&number).is_some_and(|connection| connection.is_swallowed) {
            state.trace.meet("a reply that is swallowed");
            state.is_lossy = true;
            return Answer::Silence;
        }
        let delay = state.delay(node);
        let (first, rest) = reply.split_at(reply.len() / 2);
        let millis = Duration::from_millis;
        match mishap {
            None | Some(Mishap::CutBefore) => Answer::Sent(delay, reply, None),
            Some(Mishap::Late(late)) => Answer::Sent(millis(late), reply, None),
            Some(Mishap::CutAfter) => Answer::Cut(Vec::new()),
            Some(Mishap::Half) => Answer::Cut(first.to_vec()),
            Some(Mishap::Pause(pause)) => Answer::Sent(delay, first.to_vec(), Some((millis(pause), rest.to_vec()))),
            Some(Mishap::Stray) => Answer::Sent(delay, [&b"+OK\r\n"[..], &reply].concat(), None),
            Some(Mishap::StrayBytes) => Answer::Sent(delay, [&b"$5\r\nhello\r\n"[..], &reply].concat(), None),
        }
    }
}

impl State {
    /// Notes that a call meets a mishap.
    fn meets(&mut self, number: u64, mishap: Mishap) {
        self.trace.meet(mishap.name());
        self.trace.say(format_args!("connection {number}: {mishap:?}"));
        let losses = self.losses;
        self.may_fail();
        match mishap {
            Mishap::Late(millis) | Mishap::Pause(millis) => {
                self.troubled = Some(Instant::now() + Duration::from_millis(millis));
            }
            // The connection ends with it, which is one failure.
            _ => (self.is_lossy, self.losses) = (true, losses.map(|losses| losses + 1)),
        }
    }

    /// Notes since when a call on a connection has not been replied to.
    fn owes(&mut self, number: u64, since: Option<Instant>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let before = std::mem::replace(&mut connection.owes, since);
        self.is_lossy |= before.is_some_and(|before| before.elapsed() > LATE);
        if before.is_some() && since.is_none() {
            // The store has replied, so it is not away.
            self.open_since.fill(None);
        }
    }
}

/// A connection that is there, until this is dropped.
struct There(World, u64);

impl Drop for There {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.trace.say(format_args!("connection {} ends", self.1));
        let removed = state.connections.remove(&self.1);
        state.is_lossy |= removed.is_some_and(|connection| connection.owes.is_some());
    }
}
