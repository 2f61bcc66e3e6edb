//! The task of a connection: it connects when something waits, reads replies, and sends what has queued.
//!
//! | the connection is | when | then |
//! | --- | --- | --- |
//! | made | something waits | what waited when an attempt began fails with it |
//! | lost | it ends, or has a reply to nothing that was sent | what was in flight fails, what surely was not sent waits again |
//! | replaced | no reply came for a whole budget, or it leads to a replica | late replies are read for 10 s, to be refunded |
//!
//! Each loss is one failure of the server, however many calls it ends.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{RedisError, Value};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::calls::{Outcome, outcome};
use super::entries::Command;
use super::job::{Failed, Part, settle_again, settle_later, stopped};
use super::pipe::Pipe;
use super::queue::{Done, Line, Queue, lost_connection};
use super::resp::{OutOfStep, Reply, next};
use super::socket::{Reader, Socket, other, register, tcp};
use crate::core::Error;
use crate::store::breaker::Permit;
use crate::store::redis::connections::{Failure, Link, Source, failed, is_definite, is_of_a_replica, is_redirection};
use crate::store::redis::wire::{Reply as Script, no_decision};

/// How long late replies are read on a connection that was replaced.
const LATE_REPLIES: Duration = Duration::from_secs(10);

/// The most connections that late replies are read on.
const MOST_REPLACED: usize = 4;

/// A connection attempt.
type Connecting = Pin<Box<dyn Future<Output = Result<Link, Error>> + Send>>;

/// What was sent together on a connection of the application's.
enum Sent {
    New(Pin<Box<dyn Future<Output = Result<Vec<Value>, RedisError>> + Send>>),
    /// One before it has no replies yet.
    Replied(Result<Vec<Value>, RedisError>),
}

/// Drives the connection of one runtime to one server.
pub(super) struct Task {
    pipe: Arc<Pipe>,
    source: Arc<Source>,
    runtime: Handle,
    wire: Wire,
    replaced: VecDeque<Replaced>,
    /// Made when it is first set.
    timer: Option<Pin<Box<Sleep>>>,
    /// Empty, kept for its room.
    wakers: Vec<Waker>,
}

/// What is read from.
enum Wire {
    Down,
    /// An attempt, and when it began.
    Connecting(Connecting, Instant),
    Stream(Stream),
    Pool(Pooled),
}

struct Stream {
    reader: Reader,
    received: Received,
    /// Held, as the stream is closed without its other half.
    socket: Arc<Socket>,
}

/// A connection of the application's.
struct Pooled {
    connection: MultiplexedConnection,
    sent: VecDeque<Sent>,
    received: Received,
}

/// What came, and how much of it are replies that were read.
#[derive(Default)]
struct Received {
    bytes: BytesMut,
    read: usize,
}

/// A connection on which nothing is sent any more.
struct Replaced {
    wire: Wire,
    commands: VecDeque<Command>,
    until: Instant,
}

/// Commands, and what the replies are to them.
type Read = SmallVec<[(Command, Outcome); 1]>;

/// Why nothing more is read.
struct Lost(Option<io::Error>);

/// What became of replies.
enum Handed {
    All,
    /// One of them shows that the server is a replica.
    OfReplica,
    /// One of them cannot be a reply to what was sent.
    Stray(VecDeque<Command>),
}

impl Task {
    pub(super) fn new(pipe: Arc<Pipe>, source: Arc<Source>, runtime: Handle, link: Option<Link>) -> Self {
        let (replaced, wakers) = (VecDeque::new(), Vec::new());
        let mut task = Self { pipe, source, runtime, wire: Wire::Down, replaced, timer: None, wakers };
        if let Some(link) = link {
            task.connected(link);
        }
        task
    }

    /// Does all that can be done now.
    fn work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        register(&mut self.pipe.lock().task, cx.waker());
        loop {
            let mut done = Done { wakers: mem::take(&mut self.wakers), ..Done::default() };
            self.connect(cx, &mut done);
            self.receive(cx, &mut done);
            self.send(cx, &mut done);
            self.receive_late(cx, &mut done);
            self.look_at_the_clock(cx, &mut done);
            // What was sent is on its way by now: callers that are woken delay what comes after it.
            self.finish(done);
            let queue = self.pipe.lock();
            let settles = self.replaced.iter().any(|replaced| replaced.commands.iter().any(|command| command.settles));
            if queue.is_last && queue.is_idle() && !settles {
                return Poll::Ready(());
            }
            // A connection was given up, and something waits for the next one.
            if !(matches!(self.wire, Wire::Down) && queue.has_waiting()) {
                return Poll::Pending;
            }
        }
    }

    /// Connects if something waits.
    fn connect(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        if matches!(self.wire, Wire::Down) {
            let mut queue = self.pipe.lock();
            if !queue.has_waiting() {
                return;
            }
            queue.line = Line::Connecting;
            let source = Arc::clone(&self.source);
            self.wire = Wire::Connecting(Box::pin(async move { source.take().await }), Instant::now());
        }
        let Wire::Connecting(connecting, began) = &mut self.wire else { return };
        let (Poll::Ready(connected), began) = (connecting.as_mut().poll(cx), *began) else { return };
        match connected {
            Ok(link) => self.connected(link),
            Err(error) => {
                self.wire = Wire::Down;
                let mut queue = self.pipe.lock();
                queue.line = Line::Down;
                // Later ones have an attempt of their own: this one may have begun before the server was there.
                let permit = queue.fail_waiting(began, &error, done);
                drop(queue);
                self.report(permit, Some(&Failure::NotConnected(error)));
            }
        }
    }

    fn connected(&mut self, opened: Link) {
        let stream = |(socket, reader)| {
            let socket = Arc::new(socket);
            let received = Received::default();
            (Wire::Stream(Stream { reader, received, socket: Arc::clone(&socket) }), Line::Socket(socket))
        };
        let line;
        (self.wire, line) = match opened {
            Link::Tcp(opened) => stream(tcp(opened)),
            Link::Other(opened) => stream(other(opened)),
            Link::Pool(connection) => {
                let (sent, received) = (VecDeque::new(), Received::default());
                (Wire::Pool(Pooled { connection, sent, received }), Line::Pool)
            }
        };
        let mut queue = self.pipe.lock();
        queue.line = line;
        queue.hear();
    }

    /// Reads what has come, and hands it out.
    fn receive(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        let Some(mut received) = self.wire.received() else { return };
        let mut read = Read::new();
        let result = self.wire.receive(cx, &self.pipe, &mut received, &mut read, Queue::replied);
        let handed = self.hand(read, &received, done);
        self.wire.keep(received);
        match (handed, result) {
            (Handed::All, Ok(())) => {}
            (Handed::OfReplica, Ok(())) => self.replace(done),
            (Handed::Stray(lost), _) => self.lose(lost, None, done),
            (_, Err(Lost(error))) => self.lose(VecDeque::new(), error, done),
        }
    }

    /// Hands replies to who waits for them. None is used if one of them cannot be a reply to what was sent, as it may
    /// be to the call before.
    fn hand(&mut self, read: Read, received: &Received, done: &mut Done) -> Handed {
        if read.is_empty() {
            return Handed::All;
        }
        let is_stray = |outcome: &Outcome| match outcome {
            Outcome::Stray => true,
            // One server that has all keys redirects no calls.
            Outcome::Refused(error) => !self.pipe.watch.may_redirect() && is_redirection(error),
            Outcome::Parts(_) | Outcome::Value(_) | Outcome::Missing(_) => false,
        };
        if read.iter().any(|(_, outcome)| is_stray(outcome)) {
            return Handed::Stray(read.into_iter().map(|(command, _)| command).collect());
        }
        let (mut handed, mut reports) = (Handed::All, SmallVec::<[_; 1]>::new());
        let mut queue = self.pipe.lock();
        queue.hear();
        for (command, outcome) in read {
            let permit = command.permit;
            let (command, error) = match outcome {
                Outcome::Parts(place) => {
                    let mut reply = Script::read(&received.bytes[place], command.size);
                    for id in command.ids {
                        let part = reply.as_mut().and_then(|reply| reply.take(queue.entries.job(id).request()?));
                        let part = part.map(Part::Script).ok_or_else(|| Failed::Error(no_decision()));
                        queue.hand(id, part, done);
                    }
                    reports.extend(permit.map(|permit| (permit, None)));
                    continue;
                }
                Outcome::Value(value) => {
                    queue.hand(command.ids[0], Ok(Part::Command(value)), done);
                    reports.extend(permit.map(|permit| (permit, None)));
                    continue;
                }
                Outcome::Missing(error) => match queue.load(command) {
                    Some(command) => (command, error),
                    None => continue,
                },
                Outcome::Refused(error) => (command, error),
                Outcome::Stray => continue,
            };
            if is_of_a_replica(&error) {
                handed = Handed::OfReplica;
            }
            // What is wrong with a command of the application's is no failure of the server.
            let counts = is_definite(&error) || queue.entries.job(command.ids[0]).request().is_some();
            queue.refuse(&command, &error, &failed(&error), is_definite(&error), done);
            reports.extend(permit.map(|permit| (permit, counts.then_some(Failure::Error(error)))));
        }
        drop(queue);
        for (permit, failure) in reports {
            self.report(Some(permit), failure.as_ref());
        }
        handed
    }

    /// Sends what has queued, and what the socket has not taken before.
    fn send(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        match &mut self.wire {
            Wire::Stream(stream) => {
                let socket = Arc::clone(&stream.socket);
                if let Poll::Ready(Err(error)) = self.pipe.write_rest(&socket, cx) {
                    self.lose(VecDeque::new(), Some(error), done);
                }
            }
            Wire::Pool(Pooled { connection, sent, .. }) => {
                let before = sent.len();
                // The lock is not held in the body.
                while let Some(all) = { self.pipe.lock().next_of_pool() } {
                    sent.extend(all.into_iter().map(|(all, count)| {
                        let mut connection = connection.clone();
                        Sent::New(Box::pin(async move { connection.send_packed_commands(&all, 0, count).await }))
                    }));
                }
                if sent.len() > before {
                    // The first poll sends.
                    self.receive(cx, done);
                }
            }
            Wire::Down | Wire::Connecting(..) => {}
        }
    }

    /// Gives up a connection that is lost. `stray` are commands whose replies cannot be used.
    #[cold]
    fn lose(&mut self, stray: VecDeque<Command>, cause: Option<io::Error>, done: &mut Done) {
        self.wire = Wire::Down;
        let error = match cause {
            Some(cause) => lost_connection().with_source(cause),
            None => lost_connection(),
        };
        let mut queue = self.pipe.lock();
        let mut lost = queue.disconnect(done);
        lost.extend(stray);
        let permit = lost.iter().find_map(|command| command.permit);
        queue.fail(lost, &error, done);
        drop(queue);
        self.report(permit, Some(&Failure::NotConnected(error)));
    }

    /// Sends nothing more on a connection, and reads late replies on it.
    #[cold]
    fn replace(&mut self, done: &mut Done) {
        let wire = mem::replace(&mut self.wire, Wire::Down);
        let commands = self.pipe.lock().disconnect(done);
        if commands.is_empty() {
            return;
        }
        if self.replaced.len() == MOST_REPLACED
            && let Some(oldest) = self.replaced.pop_front()
        {
            self.pipe.lock().fail(oldest.commands, &lost_connection(), done);
        }
        self.replaced.push_back(Replaced { wire, commands, until: Instant::now() + LATE_REPLIES });
    }

    /// Reads late replies. The failure of their connection was counted when it was replaced.
    fn receive_late(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        for mut replaced in mem::take(&mut self.replaced) {
            let (mut read, commands) = (Read::new(), &mut replaced.commands);
            let mut received = replaced.wire.received().unwrap_or_default();
            let result = replaced.wire.receive(cx, &self.pipe, &mut received, &mut read, |_, failure| {
                let front = commands.front_mut().ok_or(())?;
                Ok(if front.is_before(failure) { None } else { commands.pop_front() })
            });
            let handed = self.hand(read, &received, done);
            replaced.wire.keep(received);
            let stray = match handed {
                Handed::Stray(stray) => stray,
                Handed::All | Handed::OfReplica if result.is_err() || replaced.until <= Instant::now() => {
                    VecDeque::new()
                }
                Handed::All | Handed::OfReplica => {
                    if !replaced.commands.is_empty() {
                        self.replaced.push_back(replaced);
                    }
                    continue;
                }
            };
            let lost = stray.into_iter().chain(replaced.commands).collect();
            self.pipe.lock().fail(lost, &lost_connection(), done);
        }
    }

    /// Ends the wait of those whose time is over.
    fn look_at_the_clock(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        loop {
            let armed = self.pipe.lock().armed;
            let late = self.replaced.iter().map(|replaced| replaced.until).min();
            let Some(next) = armed.into_iter().chain(late).min() else { return };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
            if timer.deadline() != next {
                timer.as_mut().reset(next);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
            let replaced: SmallVec<[_; 1]> = self.replaced.iter().map(|replaced| &replaced.commands).collect();
            let expired = self.pipe.lock().expire(Instant::now(), &replaced, done);
            drop(replaced);
            self.report(expired.late, Some(&Failure::Late));
            if expired.is_crowded {
                self.pipe.watch.waited();
            }
            if expired.is_silent {
                self.replace(done);
            }
            self.receive_late(cx, done);
        }
    }

    fn report(&self, permit: Option<Permit>, failure: Option<&Failure>) {
        if let Some(permit) = permit {
            self.pipe.watch.report(permit, failure);
        }
    }

    /// Does what is to be done without the lock.
    fn finish(&mut self, mut done: Done) {
        let unsettled = mem::take(&mut done.unsettled);
        done.wakers.drain(..).for_each(Waker::wake);
        self.wakers = mem::take(&mut done.wakers);
        done.finish();
        if !unsettled.is_empty() {
            settle_later(&self.pipe.watch, &self.runtime, unsettled);
        }
    }
}

impl Wire {
    /// Takes what was received before, if there is a connection.
    fn received(&mut self) -> Option<Received> {
        match self {
            Self::Stream(Stream { received, .. }) | Self::Pool(Pooled { received, .. }) => Some(mem::take(received)),
            Self::Down | Self::Connecting(..) => None,
        }
    }

    /// Keeps what is no whole reply yet.
    fn keep(&mut self, mut rest: Received) {
        if let Self::Stream(Stream { received, .. }) | Self::Pool(Pooled { received, .. }) = self {
            rest.bytes.advance(mem::take(&mut rest.read));
            *received = rest;
        }
    }

    /// Reads all replies that have come. `replied` returns the command of each, unless it is to what stands before that.
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        pipe: &Pipe,
        received: &mut Received,
        read: &mut Read,
        mut replied: impl FnMut(&mut Queue, Option<&RedisError>) -> Result<Option<Command>, ()>,
    ) -> Result<(), Lost> {
        let mut note = |reply: Reply<'_>, end: usize| {
            let failure = if let Reply::Error(error) = &reply { Some(error) } else { None };
            let mut queue = pipe.lock();
            if let Some(command) = replied(&mut queue, failure).map_err(|()| Lost(None))? {
                let outcome = outcome(&command, &queue.entries, reply, end);
                read.push((command, outcome));
            }
            Ok(())
        };
        match self {
            Self::Stream(Stream { reader, .. }) => loop {
                match reader.poll_read(cx, &mut received.bytes) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Ok(true)) => {}
                    Poll::Ready(Ok(false)) => return Err(Lost(None)),
                    Poll::Ready(Err(error)) => return Err(Lost(Some(error))),
                }
                while let Some((reply, length)) =
                    next(&received.bytes[received.read..]).map_err(|OutOfStep| Lost(None))?
                {
                    received.read += length;
                    if !matches!(reply, Reply::Pushed) {
                        note(reply, received.read - 2)?;
                    }
                }
            },
            Self::Pool(Pooled { sent: all, .. }) => {
                for sent in all.iter_mut() {
                    if let Sent::New(sending) = sent
                        && let Poll::Ready(replies) = sending.as_mut().poll(cx)
                    {
                        *sent = Sent::Replied(replies);
                    }
                }
                while matches!(all.front(), Some(Sent::Replied(_))) {
                    let Some(Sent::Replied(together)) = all.pop_front() else { break };
                    for reply in together.map_err(|error| Lost(Some(io::Error::other(error))))? {
                        let Value::BulkString(bytes) = reply else {
                            note(Reply::from(reply), 0)?;
                            continue;
                        };
                        received.bytes.extend_from_slice(&bytes);
                        received.read = received.bytes.len();
                        note(Reply::Bytes(&bytes), received.read)?;
                    }
                }
                Ok(())
            }
            Self::Down | Self::Connecting(..) => Ok(()),
        }
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.work(cx)
    }
}

impl Drop for Task {
    /// It ends with its runtime, or when nothing is asked any more.
    fn drop(&mut self) {
        let (error, mut done) = (stopped(), Done::default());
        let mut queue = self.pipe.lock();
        queue.close(&error, Instant::now(), &mut done);
        for replaced in mem::take(&mut self.replaced) {
            queue.fail(replaced.commands, &error, &mut done);
        }
        drop(queue);
        let unsettled = mem::take(&mut done.unsettled);
        done.finish();
        settle_again(&*self.pipe.watch, unsettled);
    }
}
