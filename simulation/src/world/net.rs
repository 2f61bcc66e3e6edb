//! The connections between clients and servers, and what goes wrong on them.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::World;
use super::connection::There;
use super::plan::Mishap;
use super::shown::{Shown, Start};
use super::wishes::{self, Wishes};
use crate::server::{Session, read_command};

/// The port of the first node.
pub(super) const FIRST_PORT: u16 = 7_000;

/// Bytes on their way in one direction at most.
const BUFFER: usize = 1 << 20;

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
    /// Opens a connection of a process to the node at a port.
    pub(super) async fn dial(self, process: usize, port: u16) -> io::Result<DuplexStream> {
        let node = usize::from(port.wrapping_sub(FIRST_PORT));
        let delay = self.lock().delay(node);
        sleep(delay).await;
        self.thaw(node).await;
        let (near, far) = duplex(BUFFER);
        let mut state = self.lock();
        if state.nodes.get(node).is_none_or(|node| !node.is_up) {
            state.may_fail();
            state.trace.meet("connection refused");
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (number, cut) = state.connects(process, node);
        let session = Session::new(&state.nodes[node].node);
        drop(state);
        let mut far = Far { stream: far, buffer: BytesMut::new(), command: None };
        let there = There(self.clone(), number);
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = cut.notified() => {}
                ended = self.serve(number, node, session, &mut far) => drop(ended),
            }
            self.lock().trace.say(format_args!("connection {number} ends"));
            let rest = far.rest().await;
            self.lock().never_ran(&rest);
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
        let is_call = !wishes.is_empty() || wishes::is_report(command);
        let mishap = if is_call { state.nodes[node].mishaps.pop_front() } else { None };
        if let Some(mishap) = mishap {
            state.trace.meet(mishap.name());
            state.is_troubled_until(Instant::now() + mishap.lasts());
            if mishap.ends_connections() {
                state.loses_a_connection();
            } else {
                state.may_fail();
            }
            state.trace.say(format_args!("connection {number}: {mishap:?}"));
        }
        if mishap == Some(Mishap::CutBefore) {
            state.never_ran(&wishes);
            return Answer::Cut;
        }
        state.runs(&wishes);
        let demoted = state.connections.get(&number).and_then(|connection| connection.is_demoted);
        if demoted.is_some() {
            state.trace.meet("a connection to what became a replica");
            state.may_fail();
        }
        let before = state.nodes[node].node.fault.read_only;
        state.nodes[node].node.fault.read_only = demoted.or(before);
        let reply = state.execute(number, node, session, command);
        state.nodes[node].node.fault.read_only = before;
        state.trace.say(format_args!("connection {number}: {} -> {}", Shown(command), Start(&reply)));
        state.has_run(number, wishes, &reply, mishap);
        if state.connections.get(&number).is_some_and(|connection| connection.is_swallowed) {
            state.trace.meet("answer swallowed");
            state.may_fail();
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
}

fn half(reply: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (first, rest) = reply.split_at(reply.len() / 2);
    (first.to_vec(), rest.to_vec())
}
