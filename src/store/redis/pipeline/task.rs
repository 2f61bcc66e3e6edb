//! The task of a connection: it connects when a request waits, reads replies, and sends queued requests.
//!
//! | the connection is | when | then |
//! | --- | --- | --- |
//! | made | a request waits | if the attempt fails, requests that waited when it began fail too |
//! | lost | it ends, or receives a reply to nothing | commands in flight fail, and those certainly not sent wait again |
//! | replaced | no reply arrived for a whole timeout, or the server is a replica | late replies are read for 10 s, to be refunded |
//!
//! Each loss counts as one failure of the server, however many calls it ends.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use deadpool_redis::redis::Value;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep_until};

use super::job::{Failed, JobReply, settle_again, settle_later, stopped};
use super::pipe::Pipe;
use super::queue::{Done, Line, lost_connection};
use super::resp::{OutOfStep, Pooled, Reply, next};
use super::socket::{Reader, Socket, other, register, tcp};
use crate::core::Error;
use crate::store::redis::connections::{
    ConnSource, Failure, Link, failed, is_definite, is_missing, is_of_a_replica, is_redirection,
};
use crate::store::redis::wire::{ScriptReply, no_decision};

const LATE_REPLIES: Duration = Duration::from_secs(10);

const MAX_REPLACED: usize = 4;

type Connecting = Pin<Box<dyn Future<Output = Result<Link, Error>> + Send>>;

pub(super) struct Task {
    pipe: Arc<Pipe>,
    source: Arc<ConnSource>,
    runtime: Handle,
    wire: Wire,
    /// Connections on which nothing is sent, and until when their late replies are read.
    replaced: Vec<(ReplyStream, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Empty. Kept to reuse its memory.
    wakers: Vec<Waker>,
}

enum Wire {
    Down,
    Connecting(Connecting, Instant),
    Open(ReplyStream),
}

struct ReplyStream {
    reader: Reader,
    received: BytesMut,
    /// Held because dropping the other half closes the stream.
    socket: Arc<Socket>,
    /// Whether it is a connection of the application's pool, which sends only when it is read.
    is_pooled: bool,
}

impl Task {
    pub(super) fn new(pipe: Arc<Pipe>, source: Arc<ConnSource>, runtime: Handle, link: Option<Link>) -> Self {
        let mut task =
            Self { pipe, source, runtime, wire: Wire::Down, replaced: Vec::new(), timer: None, wakers: Vec::new() };
        if let Some(link) = link {
            task.connected(link);
        }
        task
    }

    fn work(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        register(&mut self.pipe.lock().task, cx.waker());
        loop {
            let mut done = Done::new(mem::take(&mut self.wakers));
            self.connect(cx, &mut done);
            self.receive(cx, &mut done);
            self.receive_late(cx, &mut done);
            self.send(cx, &mut done);
            self.look_at_the_clock(cx, &mut done);
            // Only now, after sending, because woken callers would delay what follows.
            let is_lone = done.wakes_one();
            let (wakers, unsettled) = done.finish(&*self.pipe.watch);
            self.wakers = wakers;
            if !unsettled.is_empty() {
                settle_later(&self.pipe.watch, &self.runtime, unsettled);
            }
            let queue = self.pipe.lock();
            if is_lone && queue.has_waiting() {
                // For one task tokio wakes no other worker, and none may read sockets if that task blocks this one.
                self.runtime.spawn(async {});
            }
            if queue.is_last && queue.is_idle() {
                return Poll::Ready(());
            }
            // A connection was given up, and a request waits for the next one.
            if !(matches!(self.wire, Wire::Down) && queue.has_waiting()) {
                return Poll::Pending;
            }
        }
    }

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
                // Requests made after the attempt began get their own attempt, because this one may have begun before
                // the server was up.
                let permit = queue.fail_waiting(began, &error, done);
                done.report(permit, Some(Failure::NotConnected(error)));
            }
        }
    }

    fn connected(&mut self, link: Link) {
        let is_pooled = matches!(link, Link::Pool(_));
        let (socket, reader) = match link {
            Link::Tcp(stream) => tcp(stream),
            Link::Other(stream) => other(stream),
            Link::Pool(connection) => other(Box::new(Pooled::new(connection))),
        };
        let socket = Arc::new(socket);
        let mut queue = self.pipe.lock();
        queue.line = Line::Socket(Arc::clone(&socket));
        queue.hear();
        self.wire = Wire::Open(ReplyStream { reader, received: BytesMut::new(), socket, is_pooled });
    }

    fn receive(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        let Self { wire: Wire::Open(stream), pipe, .. } = self else { return };
        let mut is_of_a_replica = false;
        let result = stream.receive(cx, |reply| {
            is_of_a_replica |= hand(pipe, reply, None, done)?;
            Ok(())
        });
        match result {
            Err(error) => self.lose(error, done),
            Ok(()) if is_of_a_replica => self.replace(done),
            Ok(()) => {}
        }
    }

    fn receive_late(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        let (Self { replaced, pipe, .. }, mut place) = (self, 0);
        while let Some((stream, until)) = replaced.get_mut(place) {
            let result = stream.receive(cx, |reply| hand(pipe, reply, Some(place), done).map(drop));
            let mut queue = pipe.lock();
            if result.is_ok() && *until > Instant::now() && queue.is_replaced(place) {
                place += 1;
            } else {
                queue.fail_replaced(place, &lost_connection(), done);
                drop(queue);
                drop(replaced.remove(place));
            }
        }
    }

    fn send(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        let Wire::Open(ReplyStream { socket, is_pooled, .. }) = &self.wire else { return };
        let (socket, is_pooled) = (Arc::clone(socket), *is_pooled);
        match self.pipe.write_rest(&socket, cx) {
            Poll::Ready(Err(error)) => self.lose(error, done),
            _ if is_pooled => self.receive(cx, done),
            _ => {}
        }
    }

    #[cold]
    fn lose(&mut self, cause: io::Error, done: &mut Done) {
        self.wire = Wire::Down;
        let error = lost_connection().with_source(cause);
        let mut queue = self.pipe.lock();
        let lost = queue.disconnect(done);
        let permit = lost.iter().find_map(|command| command.permit);
        queue.fail(lost, &error, done);
        done.report(permit, Some(Failure::NotConnected(error)));
    }

    #[cold]
    fn replace(&mut self, done: &mut Done) {
        let Wire::Open(stream) = mem::replace(&mut self.wire, Wire::Down) else { return };
        let mut queue = self.pipe.lock();
        if queue.replace(done) {
            self.replaced.push((stream, Instant::now() + LATE_REPLIES));
        }
        if self.replaced.len() > MAX_REPLACED {
            queue.fail_replaced(0, &lost_connection(), done);
            drop(queue);
            drop(self.replaced.remove(0));
        }
    }

    fn look_at_the_clock(&mut self, cx: &mut Context<'_>, done: &mut Done) {
        loop {
            let armed = self.pipe.lock().armed;
            let late = self.replaced.first().map(|(_, until)| *until);
            let Some(next) = armed.into_iter().chain(late).min() else { return };
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(next)));
            if timer.deadline() != next {
                timer.as_mut().reset(next);
            }
            if timer.as_mut().poll(cx).is_pending() {
                return;
            }
            let is_silent = self.pipe.lock().expire(Instant::now(), done);
            if is_silent {
                self.replace(done);
            }
            self.receive_late(cx, done);
            self.send(cx, done);
        }
    }
}

/// Hands a reply to its callers. Returns `true` if it proves that the server is a replica.
fn hand(pipe: &Pipe, reply: Reply<'_>, replaced: Option<usize>, done: &mut Done) -> Result<bool, OutOfStep> {
    // A server that has all keys never redirects.
    if matches!(&reply, Reply::Error(error) if is_redirection(error)) && !pipe.watch.may_redirect() {
        return Err(OutOfStep);
    }
    let mut queue = pipe.lock();
    let Some(mut command) = queue.replied(&reply, replaced)? else { return Ok(false) };
    queue.hear();
    let (first, permit) = (command.ids[0], command.permit);
    let is_script = queue.entries[first].job.request().is_some();
    let mut error = match reply {
        Reply::Error(error) => error,
        Reply::Bytes(bytes) if is_script => {
            let mut reply = ScriptReply::read(bytes, command.size);
            for id in command.ids {
                let part = reply.as_mut().and_then(|reply| reply.take(queue.entries[id].job.request()?));
                queue.hand(id, part.map(JobReply::Script).ok_or_else(|| Failed::Error(no_decision())), done);
            }
            done.report(permit, None);
            return Ok(false);
        }
        reply => {
            let value = match reply {
                Reply::Bytes(bytes) => Value::BulkString(bytes.to_vec()),
                Reply::Other(value) => value,
                Reply::Error(_) | Reply::Pushed => return Err(OutOfStep),
            };
            queue.hand(first, Ok(JobReply::Command(value)), done);
            done.report(permit, None);
            return Ok(false);
        }
    };
    if is_script && is_missing(&error) {
        // Another process may have loaded the library first.
        let is_there = |detail: &str| detail.contains("already exists");
        match command.failure.take().filter(|failure| !failure.detail().is_some_and(is_there)) {
            Some(failure) => error = failure,
            // Nothing more is sent on that connection.
            None if replaced.is_some() => {
                queue.wait_again(command, &failed(&error).unsent(), done);
                return Ok(false);
            }
            None => match queue.load(command) {
                Some(loaded) => command = loaded,
                None => return Ok(false),
            },
        }
    }
    queue.refuse(&command, &error, done);
    let is_of_a_replica = is_of_a_replica(&error);
    // An error in the application's own command is no failure of the server.
    let counts = is_script || is_definite(&error);
    done.report(permit, counts.then_some(Failure::Error(error)));
    Ok(is_of_a_replica)
}

impl ReplyStream {
    fn receive(
        &mut self,
        cx: &mut Context<'_>,
        mut replied: impl FnMut(Reply<'_>) -> Result<(), OutOfStep>,
    ) -> io::Result<()> {
        loop {
            match self.reader.poll_read(cx, &mut self.received) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(Err(error)) => return Err(error),
            }
            while let Some((reply, length)) = next(&self.received)? {
                if !matches!(reply, Reply::Pushed) {
                    replied(reply)?;
                }
                self.received.advance(length);
            }
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
    fn drop(&mut self) {
        let mut done = Done::default();
        self.pipe.lock().close(&stopped(), Instant::now(), &mut done);
        let (_, unsettled) = done.finish(&*self.pipe.watch);
        settle_again(&*self.pipe.watch, unsettled);
    }
}
