//! The queue and task of one connection, as callers see it.
//!
//! A caller that finds that a [round may be written](Queue::may_write) encodes its request and writes it. Other callers
//! only queue. The lock is never held over a system call. A caller that has written checks the queue once more, or
//! wakes the task: otherwise requests that were queued during the write would wait with nothing in flight.

use std::future::Future;
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::calls::SharedSettings;
use super::entries::EntryId;
use super::job::{Failed, Job, JobReply, NotGranted, Settler, SharedWatch};
use super::queue::{Next, Queue};
use super::socket::Socket;
use super::sync::{Arc, Mutex, MutexGuard, wake};
use crate::core::Error;

/// Rounds that one caller writes for others before it wakes the task instead.
const MAX_WRITES: usize = 2;

pub(super) struct Pipe {
    queue: Mutex<Queue>,
    pub(super) watch: SharedWatch,
}

impl Pipe {
    pub(super) fn new(settings: SharedSettings, watch: SharedWatch) -> Self {
        Self { queue: Mutex::new(Queue::new(settings)), watch }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().end.is_some()
    }

    /// Ignores poisoning: under the lock, only a clock can panic.
    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        match self.queue.lock() {
            Ok(queue) => queue,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    pub(super) fn settle(&self, job: Box<Job>, settler: Settler) -> Result<(), (Box<Job>, Settler)> {
        let mut queue = self.lock();
        let next = queue.settle(job, settler)?;
        self.follow(queue, next);
        Ok(())
    }

    fn follow<'a>(&'a self, mut queue: MutexGuard<'a, Queue>, mut next: Next) {
        for turn in 1.. {
            let wakes = mem::take(&mut queue.arms) || matches!(next, Next::Wake);
            let task = if wakes { queue.task.clone() } else { None };
            drop(queue);
            // Before a write, because a write may panic. Then only the task's timer ends the wait.
            task.into_iter().for_each(wake);
            let Next::Write(round) = next else { return };
            let (number, rest, unsent) = round.write();
            queue = self.lock();
            next = queue.written(number, rest, unsent, turn < MAX_WRITES);
        }
    }

    pub(super) fn wake(&self) {
        self.follow(self.lock(), Next::Wake);
    }

    /// Writes the rest of earlier writes for the task, then queued requests.
    pub(super) fn write_rest(&self, socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut queue = self.lock();
            let Some((mut rest, number, unsent)) = queue.take_rest() else {
                match queue.next() {
                    next @ Next::Write(_) => self.follow(queue, next),
                    Next::Wake | Next::Rest => return Poll::Ready(Ok(())),
                }
                continue;
            };
            drop(queue);
            let sent = socket.send(&rest);
            rest.drain(..*sent.as_ref().unwrap_or(&0));
            let (is_rest, unsent) =
                (!rest.is_empty(), if matches!(sent, Ok(0)) || sent.is_err() && unsent == 1 { unsent } else { 0 });
            let _ = self.lock().written(number, rest, unsent, false);
            sent?;
            if is_rest {
                // The socket takes no more for now.
                ready!(socket.poll_ready(cx))?;
            }
        }
    }
}

/// Sends nothing before the first poll. If dropped, the request is not sent, or its reply is dropped.
pub(in crate::store::redis) struct Asking {
    pipe: Arc<Pipe>,
    stage: Stage,
}

enum Stage {
    New(Box<Job>),
    Waits(EntryId),
    Over,
}

impl Asking {
    #[inline]
    pub(super) fn new(pipe: Arc<Pipe>, job: Box<Job>) -> Self {
        Self { pipe, stage: Stage::New(job) }
    }

    /// Like the first poll.
    pub(super) fn begin(pipe: Arc<Pipe>, job: Job, cx: &Context<'_>) -> Result<Self, Error> {
        let mut asking = Self { pipe, stage: Stage::Over };
        asking.ask(job, cx)?;
        Ok(asking)
    }

    fn ask(&mut self, job: Job, cx: &Context<'_>) -> Result<(), Error> {
        let mut queue = self.pipe.lock();
        let (id, next) = queue.ask(job, cx.waker())?;
        self.stage = Stage::Waits(id);
        self.pipe.follow(queue, next);
        Ok(())
    }
}

impl Future for Asking {
    type Output = Result<JobReply, NoReply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = match mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(job) => {
                self.ask(*job, cx)?;
                return Poll::Pending;
            }
            Stage::Waits(id) => id,
            Stage::Over => panic!("it was polled after its reply"),
        };
        let polled = self.pipe.lock().poll(id, cx.waker());
        match polled {
            Poll::Pending => {
                self.stage = Stage::Waits(id);
                Poll::Pending
            }
            Poll::Ready(Ok(part)) => Poll::Ready(Ok(part)),
            Poll::Ready(Err(failed)) => Poll::Ready(Err(match failed {
                Failed::Error(error) => error.into(),
                Failed::Late(error) => {
                    let late = Some(Self { pipe: Arc::clone(&self.pipe), stage: Stage::Waits(id) });
                    NoReply { error, late, refused: None }
                }
                Failed::Refused(error, refused) => NoReply { error, late: None, refused: Some(refused) },
            })),
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Stage::Waits(id) = self.stage {
            self.pipe.lock().leave(id);
        }
    }
}

pub(in crate::store::redis) struct NoReply {
    pub(in crate::store::redis) error: Error,
    pub(in crate::store::redis) late: Option<Asking>,
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server redirects nothing"))]
    pub(in crate::store::redis) refused: Option<Box<NotGranted>>,
}

impl From<Error> for NoReply {
    fn from(error: Error) -> Self {
        Self { error, late: None, refused: None }
    }
}
