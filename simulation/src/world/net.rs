//! The connections between clients and servers, and what goes wrong on them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::World;
use super::plan::Mishap;
use super::shown::{Shown, Start};
use super::state::State;
use super::wishes::{self, Wishes};
use crate::server::{Session, read_command};

/// The port of the first node.
pub(super) const FIRST_PORT: u16 = 7_000;

/// Bytes on their way in one direction at most.
const BUFFER: usize = 1 << 20;

/// For so long clients receive answers that come late, less the time of one answer.
const LATE: Duration = Duration::from_secs(6);

/// A connection as the world sees it.
#[derive(Debug)]
pub(super) struct Connection {
    node: usize,
    /// Ends it.
    cut: Arc<Notify>,
    /// Nothing passes any more.
    is_swallowed: bool,
    /// Its answers are not those to its questions any more.
    is_out_of_step: bool,
    /// What ran, and whose answer is on its way.
    pending: Wishes,
    /// When that was.
    since: Instant,
    /// It was the world that ended it, not the client.
    is_cut: bool,
    /// It was refused what a redirected call needs before it.
    is_not_asking: bool,
    /// What was answered last, and when.
    answered: (Instant, Wishes),
    /// What was refused, and is asked again if the client learns it.
    refused: Wishes,
    /// What is asked again once a script is loaded.
    missing: Wishes,
}

/// What becomes of a command.
enum Answer {
    /// This, after so long.
    After(Duration, Vec<u8>),
    /// The first part, and the rest after so long; never without one.
    Halves(Vec<u8>, Vec<u8>, Option<Duration>),
    /// The connection ends.
    Cut,
    /// Nothing.
    Silence,
}

/// A connection that is there, until this is dropped.
struct There(World, u64);

impl Drop for There {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if let Some(connection) = state.connections.remove(&self.1) {
            // A client that closes it before the answer comes has to have waited long for that.
            if connection.is_cut || connection.is_swallowed || connection.since.elapsed() > LATE {
                state.unanswered(&connection.pending);
            }
            state.never_ran(&connection.refused);
            state.never_ran(&connection.missing);
        }
    }
}

/// The far end of a connection, and what came over it.
struct Far {
    stream: DuplexStream,
    buffer: BytesMut,
    /// A command that has not run yet.
    command: Option<Vec<Bytes>>,
}

impl Far {
    /// All that came and did not run.
    async fn rest(mut self) -> Wishes {
        // What is there already, and nothing that comes later.
        while let Ok(Ok(1..)) = timeout(Duration::ZERO, self.stream.read_buf(&mut self.buffer)).await {}
        let mut wishes = self.command.as_deref().map(wishes::of_command).unwrap_or_default();
        while let Ok(Some(command)) = read_command(&mut self.buffer) {
            wishes.extend(wishes::of_command(&command));
        }
        wishes
    }
}

impl World {
    /// Opens a connection to the node at a port.
    pub(super) async fn dial(self, port: u16) -> io::Result<DuplexStream> {
        let node = usize::from(port.wrapping_sub(FIRST_PORT));
        let delay = self.lock().delay(node);
        sleep(delay).await;
        self.thaw(node).await;
        let (near, far) = duplex(BUFFER);
        let mut state = self.lock();
        if state.nodes.get(node).is_none_or(|node| !node.is_up) {
            state.trace.meet("connection refused");
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        state.last_connection += 1;
        let (number, cut) = (state.last_connection, Arc::new(Notify::new()));
        let connection = Connection {
            node,
            cut: Arc::clone(&cut),
            is_swallowed: false,
            is_out_of_step: false,
            pending: Wishes::new(),
            since: Instant::now(),
            is_cut: false,
            is_not_asking: false,
            answered: (Instant::now(), Wishes::new()),
            refused: Wishes::new(),
            missing: Wishes::new(),
        };
        state.connections.insert(number, connection);
        state.connects(node);
        state.trace.say(format_args!("connection {number} to node {node}"));
        let session = Session::new(&state.nodes[node].node);
        drop(state);
        let there = There(self.clone(), number);
        tokio::spawn(async move {
            let world = self;
            let mut far = Far { stream: far, buffer: BytesMut::new(), command: None };
            tokio::select! {
                biased;
                () = cut.notified() => {}
                ended = world.serve(number, node, session, &mut far) => drop(ended),
            }
            world.lock().trace.say(format_args!("connection {number} ends"));
            let rest = far.rest().await;
            world.lock().never_ran(&rest);
            drop(there);
        });
        Ok(near)
    }

    async fn serve(&self, number: u64, node: usize, mut session: Session, far: &mut Far) -> io::Result<()> {
        while far.stream.read_buf(&mut far.buffer).await? > 0 {
            while let Ok(Some(command)) = read_command(&mut far.buffer) {
                far.command = Some(command);
                let delay = self.lock().delay(node);
                sleep(delay).await;
                self.thaw(node).await;
                let Some(command) = far.command.take() else { continue };
                match self.run(number, node, &mut session, &command) {
                    Answer::After(delay, answer) => {
                        sleep(delay).await;
                        far.stream.write_all(&answer).await?;
                    }
                    Answer::Halves(first, rest, pause) => {
                        far.stream.write_all(&first).await?;
                        let Some(pause) = pause else { return Ok(()) };
                        sleep(pause).await;
                        far.stream.write_all(&rest).await?;
                    }
                    Answer::Cut => return Ok(()),
                    Answer::Silence => continue,
                }
                self.lock().is_answered(number);
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
        let (mut state, wishes) = (self.lock(), wishes::of_command(command));
        let mishap = if wishes.is_empty() { None } else { state.nodes[node].mishaps.pop_front() };
        if let Some(mishap) = mishap {
            state.trace.meet(mishap.name());
            state.trace.say(format_args!("connection {number}: {mishap:?}"));
        }
        if mishap == Some(Mishap::CutBefore) {
            state.never_ran(&wishes);
            return Answer::Cut;
        }
        state.runs(&wishes);
        let reply = state.execute(node, session, command);
        state.trace.say(format_args!("connection {number}: {} -> {}", Shown(command), Start(&reply)));
        state.has_run(number, wishes, &reply, mishap);
        if state.connections.get(&number).is_some_and(|connection| connection.is_swallowed) {
            state.trace.meet("answer swallowed");
            return Answer::Silence;
        }
        let (first, rest) = half(&reply);
        match mishap {
            None | Some(Mishap::CutBefore) => Answer::After(state.delay(node), reply),
            Some(Mishap::Late(millis)) => Answer::After(Duration::from_millis(millis), reply),
            Some(Mishap::CutAfter) => Answer::Cut,
            Some(Mishap::Half) => Answer::Halves(first, rest, None),
            Some(Mishap::Pause(millis)) => Answer::Halves(first, rest, Some(Duration::from_millis(millis))),
            Some(Mishap::Stray) => Answer::After(state.delay(node), [&b"+OK\r\n"[..], &reply].concat()),
            Some(Mishap::StrayBytes) => Answer::After(state.delay(node), [&b"$5\r\nhello\r\n"[..], &reply].concat()),
        }
    }

    /// Ends all connections to a node.
    pub(super) fn cut(&self, node: usize) {
        let mut state = self.lock();
        for connection in state.connections.values_mut().filter(|connection| connection.node == node) {
            connection.is_cut = true;
            connection.cut.notify_one();
        }
    }

    /// Has nothing pass any more on the connections to a node.
    pub(super) fn swallow(&self, node: usize) {
        let mut state = self.lock();
        for connection in state.connections.values_mut().filter(|connection| connection.node == node) {
            connection.is_swallowed = true;
        }
    }
}

impl State {
    /// Notes that a command has run on a connection.
    fn has_run(&mut self, number: u64, wishes: Wishes, reply: &[u8], mishap: Option<Mishap>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut unanswered = Wishes::new();
        if matches!(mishap, Some(Mishap::Stray | Mishap::StrayBytes | Mishap::Half)) {
            connection.is_out_of_step = true;
            // What came at the same time is not believed either.
            unanswered = std::mem::take(&mut connection.answered.1);
        }
        connection.is_cut |= matches!(mishap, Some(Mishap::CutAfter | Mishap::Half));
        let (is_lost, node) = (connection.is_out_of_step || connection.is_swallowed, connection.node);
        let asked_again = ["-NOSCRIPT", "-MOVED", "-ASK", "-TRYAGAIN"];
        let is_refused = wishes.is_empty() && reply.starts_with(b"-");
        let was_not_asking = std::mem::replace(&mut connection.is_not_asking, is_refused);
        if let Some(server) = self.nodes.get_mut(node).filter(|_| !wishes.is_empty()) {
            server.attempts = 0;
        }
        if wishes.is_empty() {
            // What a script was loaded for is not asked again if that failed.
            if reply.starts_with(b"-") {
                let missing = std::mem::take(&mut connection.missing);
                self.never_ran(&missing);
            }
        } else if !reply.starts_with(b"-") {
            connection.missing.retain(|missing| !wishes.contains(missing));
            if is_lost {
                unanswered.append(&mut connection.pending);
                unanswered.extend(wishes);
            } else {
                (connection.pending, connection.since) = (wishes, Instant::now());
            }
        } else if is_lost || was_not_asking || !asked_again.iter().any(|code| reply.starts_with(code.as_bytes())) {
            self.never_ran(&wishes);
        } else if reply.starts_with(b"-NOSCRIPT") {
            connection.missing.extend(wishes);
        } else {
            connection.refused = wishes;
        }
        self.unanswered(&unanswered);
    }

    /// Notes that the answer to a command has been sent.
    fn is_answered(&mut self, number: u64) {
        if let Some(connection) = self.connections.get_mut(&number) {
            let (now, answered) = (Instant::now(), std::mem::take(&mut connection.pending));
            if connection.answered.0 == now {
                connection.answered.1.extend(answered);
            } else {
                connection.answered = (now, answered);
            }
            connection.refused.clear();
        }
    }
}

fn half(reply: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (first, rest) = reply.split_at(reply.len() / 2);
    (first.to_vec(), rest.to_vec())
}

/// Mishaps that decisions are to meet.
pub(super) type Mishaps = VecDeque<Mishap>;
