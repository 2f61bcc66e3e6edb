//! The way from the callers of one runtime to one server: what they and the task share, and who writes.
//!
//! A caller that finds fewer than two rounds in flight, and nobody writing, makes a call of its request and writes it by
//! itself; any other only queues. The lock is never held over a system call. Whoever stops writing looks once more at
//! what has queued meanwhile, or wakes the task for it: otherwise it would wait with nothing in flight.

use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::Instant;

use super::calls::{SharedSettings, calls, encode};
use super::job::{Failed, Job, Part, Response, Settler, SlotId};
use super::queue::{Buffers, Done, Launched, Next, Queue, Round};
use super::socket::Socket;
use super::sync::{Arc, Mutex, MutexGuard, wake};
use super::watch::{SharedWatch, settle_again};
use crate::core::Error;

/// How often one caller writes for others, before it leaves that to the task.
const MOST_WRITES: usize = 2;

/// What callers and the task of a connection share.
pub(super) struct Pipe {
    queue: Mutex<Queue>,
    pub(super) watch: SharedWatch,
    pub(super) settings: SharedSettings,
}

impl Pipe {
    pub(super) fn new(settings: SharedSettings, watch: SharedWatch) -> Self {
        Self { queue: Mutex::new(Queue::new(settings.batch_size, settings.in_flight)), watch, settings }
    }

    /// Locks the queue. Nothing that can panic is done under the lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        match self.queue.lock() {
            Ok(queue) => queue,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    /// Queues a settlement. Returns it if the runtime has ended.
    pub(super) fn settle(&self, job: Box<Job>, settler: Settler) -> Result<(), (Box<Job>, Settler)> {
        let silent = job.timeout.ends;
        let mut queue = self.lock();
        let next = queue.settle(job, settler)?;
        // Whether the server is silent is looked at by the timer of a decision, or by this one.
        let arms = queue.armed.is_none();
        queue.armed.get_or_insert(silent);
        self.follow(queue, next);
        if arms {
            self.wake();
        }
        Ok(())
    }

    /// Does what is to be done after a change of the queue.
    pub(super) fn follow(&self, queue: MutexGuard<'_, Queue>, next: Next) {
        match next {
            Next::Rest => {}
            Next::Wake => {
                let task = queue.task.clone();
                drop(queue);
                task.into_iter().for_each(wake);
            }
            Next::Write(round) => {
                drop(queue);
                self.write(round);
            }
        }
    }

    pub(super) fn wake(&self) {
        let queue = self.lock();
        self.follow(queue, Next::Wake);
    }

    /// Writes a round, and then what has queued meanwhile.
    fn write(&self, mut round: Round) {
        for turn in 1.. {
            let Round { socket, number, what, mut buffers } = round;
            let (mut commands, Buffers { bytes, known }) = (calls(what), &mut buffers);
            encode(&mut commands, &self.settings, known, bytes);
            let count = commands.len();
            let mut queue = self.lock();
            let Ok(Launched { was_quiet, arms }) = queue.launch(number, commands) else {
                return self.give_back(queue);
            };
            drop(queue);
            if arms {
                self.wake();
            }
            // One that has ended while nothing was in flight costs no request, if it is known by now.
            let is_over = was_quiet && !socket.is_quiet();
            // Of an error the task hears, too, when it writes the rest.
            let result = if is_over { Ok(0) } else { socket.send(bytes) };
            // A stream that fails may have passed on the first of several commands.
            let unsent = if matches!(result, Ok(0)) || result.is_err() && count == 1 { count } else { 0 };
            bytes.drain(..result.unwrap_or(0));
            let mut queue = self.lock();
            match queue.written(number, buffers, unsent, turn < MOST_WRITES) {
                Next::Write(more) => round = more,
                next => return self.follow(queue, next),
            }
        }
    }

    /// Writes, for the task, what the socket has not taken before, and then what has queued.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    pub(super) fn write_rest(&self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut queue = self.lock();
            let (number, unsent) = (queue.number, queue.unsent());
            let Some(mut rest) = queue.take_rest() else {
                match queue.next() {
                    next @ Next::Write(_) => self.follow(queue, next),
                    Next::Wake | Next::Rest => return Poll::Ready(Ok(())),
                }
                continue;
            };
            drop(queue);
            let sent = socket.send(&rest.bytes);
            rest.bytes.drain(..*sent.as_ref().unwrap_or(&0));
            let (is_rest, unsent) = (
                !rest.bytes.is_empty(),
                if matches!(sent, Ok(0)) || sent.is_err() && unsent == 1 { unsent } else { 0 },
            );
            let _ = self.lock().written(number, rest, unsent, false);
            sent?;
            if is_rest {
                // It takes no more for now.
                match ready!(socket.poll_ready(cx)) {
                    Ok(()) => {}
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        }
    }

    /// Ends a write to a connection that was given up before: its requests wait again, unless the runtime has ended.
    #[cold]
    fn give_back(&self, mut queue: MutexGuard<'_, Queue>) {
        let mut done = Done::default();
        if let Some(end) = queue.end.as_ref().map(Error::shared) {
            queue.fail_waiting(Instant::now(), &end, &mut done);
        }
        done.wakers.append(&mut queue.woken);
        self.follow(queue, Next::Wake);
        let unsettled = mem::take(&mut done.unsettled);
        done.finish();
        settle_again(&*self.watch, unsettled);
    }
}

/// The wait for a reply. Nothing is sent before the first poll.
///
/// # Cancellation
///
/// Dropped, a request that was not sent is not sent any more; of one that was, the reply is dropped.
pub(in crate::store::redis) struct Asking {
    pipe: Arc<Pipe>,
    stage: Stage,
}

enum Stage {
    New(Box<Job>),
    Waits(SlotId),
    Over,
}

impl Asking {
    pub(super) fn new(pipe: Arc<Pipe>, job: Box<Job>) -> Self {
        Self { pipe, stage: Stage::New(job) }
    }

    /// Asks, and writes if nobody else does.
    fn ask(&mut self, job: Box<Job>, cx: &Context<'_>) -> Poll<Response> {
        let until = job.timeout.until;
        let mut queue = self.pipe.lock();
        match queue.ask(job, cx.waker()) {
            Ok((id, next)) => {
                self.stage = Stage::Waits(id);
                let arms = queue.armed.is_none_or(|armed| armed > until);
                if arms {
                    queue.armed = Some(until);
                }
                self.pipe.follow(queue, next);
                if arms {
                    self.pipe.wake();
                }
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(Failed::Error(error))),
        }
    }
}

impl Future for Asking {
    type Output = Response;

    /// Once it was ready with [`Failed::Late`], it can be polled again, for the reply that comes later.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        let id = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(job) => return self.ask(job, cx),
            Stage::Waits(id) => id,
            Stage::Over => panic!("it was polled after its reply"),
        };
        let polled = self.pipe.lock().poll(id, cx.waker());
        if matches!(polled, Poll::Pending | Poll::Ready(Err(Failed::Late(_)))) {
            self.stage = Stage::Waits(id);
        }
        polled
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Stage::Waits(id) = self.stage {
            self.pipe.lock().leave(id);
        }
    }
}

/// Why there is no reply, and what may still receive one.
pub(in crate::store::redis) struct NoReply {
    /// The error for the caller.
    pub(in crate::store::redis) error: Error,
    /// Receives the reply to what was sent, if its time was over before.
    pub(in crate::store::redis) late: Option<Asking>,
}

impl From<Error> for NoReply {
    fn from(error: Error) -> Self {
        Self { error, late: None }
    }
}

impl Asking {
    /// Waits for the reply.
    pub(in crate::store::redis) async fn reply(mut self) -> Result<Part, NoReply> {
        match (&mut self).await {
            Ok(part) => Ok(part),
            Err(Failed::Late(error)) => Err(NoReply { error, late: Some(self) }),
            Err(failed) => Err(failed.into_error().into()),
        }
    }
}
