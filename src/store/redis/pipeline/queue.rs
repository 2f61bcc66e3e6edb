//! Who waits for what: requests in no call yet, calls in flight, and who writes.
//!
//! All of it is one value behind one lock; the methods here are what happens under it. At most one writes at a time: it
//! has got [`Next::Write`], hands in its calls by [`Queue::launch`], and ends by [`Queue::written`]. What it does
//! meanwhile has no effect if the connection was given up: that has another [number](Queue::number) then.

use std::collections::VecDeque;
use std::mem;
use std::task::{Poll, Waker};

use deadpool_redis::redis::RedisError;
use slab::Slab;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::calls::Known;
use super::job::{
    Command, Entries, Entry, Failed, Job, Part, Refused, Response, Settler, SlotId, Unsettled, What, fail_all,
};
use super::socket::Socket;
use super::sync::Arc;
use super::timeout::{Lateness, Timeout};
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::breaker::Permit;

/// The most requests that wait for a call; a decision beyond them fails at once.
const MOST_WAITING: usize = 65_536;

/// The number of checks that is not worth two calls.
const LEAST: usize = 4;

/// How often a request is sent anew because it was surely not sent before.
const MOST_TRIES: u8 = 3;

/// How often a call is repeated with what it lacks: the server may be flushed in between.
const MOST_LOADS: u8 = 3;

enum Slot {
    /// Waits for a reply. Once its time is over, it waits only to refund what is taken.
    Waits {
        waker: Option<Waker>,
        is_late: bool,
    },
    /// Its time was over while it was in flight; its caller was woken, and does not know yet.
    Late(Error),
    Done(Response),
    /// Nobody waits any more.
    Left,
    /// A settlement, which waits for no call of [`Queue::poll`].
    Settles(Settler),
}

/// A command in flight.
struct Flight {
    command: Command,
    /// How many replies had come when it was sent, or when silence was last looked for.
    heard: u64,
    /// When the server is silent if no other has come.
    silent: Instant,
    /// Whether it is the last of its round.
    ends_round: bool,
    /// Whether it was reported to be late.
    is_late: bool,
}

/// The way to the server.
pub(super) enum Line {
    Down,
    Connecting,
    /// Callers write by themselves.
    Socket(Arc<Socket>),
    /// The task sends, on a connection of the application's.
    Pool,
}

/// What whoever has changed the queue is to do next, after the lock.
pub(super) enum Next {
    Write(Round),
    /// Wake the task.
    Wake,
    Rest,
}

/// What one writer makes calls of.
pub(super) struct Round {
    pub(super) socket: Arc<Socket>,
    /// The number of the connection.
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) buffers: Buffers,
}

/// What a writer has to know of what it has put in flight.
pub(super) struct Launched {
    /// Whether nothing was in flight before.
    pub(super) was_quiet: bool,
    /// Whether the task has to set its timer anew.
    pub(super) arms: bool,
}

/// What only the writer uses.
#[derive(Default)]
pub(super) struct Buffers {
    /// What is to be written.
    pub(super) bytes: Vec<u8>,
    pub(super) known: Known,
}

/// What is done after the lock: wakers are called, settlements completed or handed on.
#[derive(Default)]
pub(super) struct Done {
    pub(super) wakers: Vec<Waker>,
    pub(super) settled: Vec<(Settler, Part)>,
    pub(super) failed: Option<(Vec<Settler>, Error)>,
    /// Surely not done.
    pub(super) unsettled: Vec<Unsettled>,
}

/// What the clock shows.
#[derive(Default)]
pub(super) struct Expired {
    /// Decisions waited for a whole budget to be sent.
    pub(super) is_crowded: bool,
    /// The permit of a call that is late.
    pub(super) late: Option<Permit>,
    /// The connection has had no reply for a whole budget.
    pub(super) is_silent: bool,
}

pub(super) struct Queue {
    slots: Slab<Slot>,
    /// Requests in no call yet, in their order.
    waiting: VecDeque<Entry>,
    /// The checks of all that wait.
    checks: usize,
    /// Commands that are to be sent again.
    again: VecDeque<Command>,
    flight: VecDeque<Flight>,
    /// The checks in flight.
    sent: usize,
    rounds: usize,
    pub(super) line: Line,
    /// The number of the connection.
    pub(super) number: u64,
    /// Whether somebody writes.
    writing: bool,
    /// With what the socket has not taken yet, for the task; mostly with nothing.
    rest: Buffers,
    /// How many of the last commands in flight surely were not sent.
    unsent: usize,
    /// How many replies came on this connection.
    heard: u64,
    /// When the task's timer goes off at the latest, if it is set.
    pub(super) armed: Option<Instant>,
    late: Lateness,
    /// The most checks of a round.
    batch_size: usize,
    /// The most rounds in flight: the server and the process work at the same time, and requests that come meanwhile
    /// form the next one.
    most_rounds: usize,
    /// Why no more is sent, once the runtime has ended.
    pub(super) end: Option<Error>,
    /// Whether no more will be asked.
    pub(super) is_last: bool,
    /// The waker of the task, once that has run.
    pub(super) task: Option<Waker>,
    /// Whose wait has ended as what they asked is not done: they are woken next.
    pub(super) woken: Vec<Waker>,
}

impl Queue {
    pub(super) fn new(batch_size: usize, most_rounds: usize) -> Self {
        Self {
            slots: Slab::new(),
            waiting: VecDeque::new(),
            checks: 0,
            again: VecDeque::new(),
            flight: VecDeque::new(),
            sent: 0,
            rounds: 0,
            line: Line::Down,
            number: 0,
            writing: false,
            rest: Buffers::default(),
            unsent: 0,
            heard: 0,
            armed: None,
            late: Lateness::default(),
            batch_size,
            most_rounds,
            end: None,
            is_last: false,
            task: None,
            woken: Vec::new(),
        }
    }

    /// Adds a request whose caller has this waker.
    ///
    /// # Errors
    ///
    /// If too many wait, or the runtime has ended.
    pub(super) fn ask(&mut self, job: Box<Job>, waker: &Waker) -> Result<(SlotId, Next), Error> {
        if let Some(end) = &self.end {
            return Err(end.shared());
        }
        if self.waiting.len() >= MOST_WAITING {
            return Err(Error::new(Kind::Crowd, "too many decisions wait for Redis"));
        }
        let id = self.slots.insert(Slot::Waits { waker: Some(waker.clone()), is_late: false });
        Ok((id, self.add(Entry { id, job })))
    }

    /// Adds a settlement. Returns it if the runtime has ended.
    pub(super) fn settle(&mut self, job: Box<Job>, settler: Settler) -> Result<Next, (Box<Job>, Settler)> {
        if self.end.is_some() {
            return Err((job, settler));
        }
        let id = self.slots.insert(Slot::Settles(settler));
        Ok(self.add(Entry { id, job }))
    }

    fn add(&mut self, entry: Entry) -> Next {
        if let Line::Socket(socket) = &self.line
            && self.waiting.is_empty()
            && self.again.is_empty()
            && self.may_write()
        {
            let socket = Arc::clone(socket);
            return self.begin(socket, What::New(SmallVec::from_buf([entry])));
        }
        self.checks += entry.job.size();
        self.waiting.push_back(entry);
        match &self.line {
            Line::Down => Next::Wake,
            Line::Pool if self.rounds < self.most_rounds => Next::Wake,
            Line::Socket(_) => self.next(),
            _ => Next::Rest,
        }
    }

    fn may_write(&self) -> bool {
        !self.writing && self.rest.bytes.is_empty() && self.rounds < self.most_rounds
    }

    /// Takes what whoever asks is to write now.
    pub(super) fn next(&mut self) -> Next {
        let Line::Socket(socket) = &self.line else { return Next::Rest };
        if !self.may_write() {
            return Next::Rest;
        }
        let socket = Arc::clone(socket);
        self.take().map_or(Next::Rest, |what| self.begin(socket, what))
    }

    fn begin(&mut self, socket: Arc<Socket>, what: What) -> Next {
        self.writing = true;
        Next::Write(Round { socket, number: self.number, what, buffers: mem::take(&mut self.rest) })
    }

    /// Takes what the task is to send on the application's connection now, and the number of that.
    pub(super) fn next_of_pool(&mut self) -> Option<(u64, What)> {
        if self.rounds < self.most_rounds { self.take().map(|what| (self.number, what)) } else { None }
    }

    /// Takes the requests of the next round, without those whose callers have left.
    fn take(&mut self) -> Option<What> {
        if let Some(command) = self.again.pop_front() {
            return Some(What::Again(command));
        }
        // Calls in flight should be alike in size: a short one behind a long one ends before the callers of the long
        // one can ask again, and then the server waits for the process.
        let share =
            if self.sent == 0 { self.checks } else { (self.sent + self.checks).div_ceil(self.most_rounds).max(LEAST) };
        let most = share.min(self.batch_size);
        let (mut entries, mut checks) = (Entries::with_capacity(most.min(self.waiting.len())), 0);
        while let Some(entry) = self.waiting.front() {
            let size = entry.job.size();
            if !entries.is_empty() && checks + size > most {
                break;
            }
            let Some(entry) = self.waiting.pop_front() else { break };
            self.checks -= size;
            if matches!(self.slots.get(entry.id), Some(Slot::Left)) {
                self.slots.remove(entry.id);
            } else {
                checks += size;
                entries.push(entry);
            }
        }
        if entries.is_empty() { None } else { Some(What::New(entries)) }
    }

    /// Puts commands in flight, which are written next.
    ///
    /// # Errors
    ///
    /// If the connection was given up: they wait again.
    pub(super) fn launch(&mut self, number: u64, commands: SmallVec<[Command; 1]>) -> Result<Launched, ()> {
        if number != self.number {
            for command in commands.into_iter().rev() {
                self.put_back(command);
            }
            return Err(());
        }
        let (was_quiet, now, was_armed) = (self.flight.is_empty(), Instant::now(), self.armed);
        self.rounds += 1;
        let count = commands.len();
        for (place, command) in commands.into_iter().enumerate() {
            self.sent += command.size();
            let ends_round = place + 1 == count;
            let (silent, heard) = (now + command.timeout().budget, self.heard);
            let until = command.entries.iter().map(|entry| entry.job.timeout.until).min();
            // The timer may have gone off while they were in the hands of the writer.
            self.armed = self.armed.into_iter().chain(until).min();
            self.flight.push_back(Flight { command, heard, silent, ends_round, is_late: false });
        }
        Ok(Launched { was_quiet, arms: self.armed != was_armed })
    }

    /// Ends a write: what `rest` has was not taken, and of the last `unsent` commands nothing was.
    pub(super) fn written(&mut self, number: u64, rest: Buffers, unsent: usize, may_go_on: bool) -> Next {
        if number != self.number {
            return Next::Wake;
        }
        self.writing = false;
        self.unsent = unsent;
        self.rest = rest;
        if !self.rest.bytes.is_empty() {
            return Next::Wake;
        }
        if may_go_on {
            return self.next();
        }
        if self.rounds < self.most_rounds && !(self.waiting.is_empty() && self.again.is_empty()) {
            Next::Wake
        } else {
            Next::Rest
        }
    }

    /// Takes what the socket has not taken; the task writes it, and ends by [`written`](Self::written).
    pub(super) fn take_rest(&mut self) -> Option<Buffers> {
        if self.writing || self.rest.bytes.is_empty() {
            return None;
        }
        self.writing = true;
        Some(mem::take(&mut self.rest))
    }

    /// Returns how many of the last commands surely were not sent.
    pub(super) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Returns the command to which the next reply is; `None` if the reply is to what stands before it. `failure` is
    /// that of the reply.
    ///
    /// # Errors
    ///
    /// If there is none: the connection is out of step.
    pub(super) fn replied(&mut self, failure: Option<&RedisError>) -> Result<Option<Command>, ()> {
        if self.flight.front_mut().ok_or(())?.command.is_before(failure) {
            return Ok(None);
        }
        let Flight { command, ends_round, .. } = self.flight.pop_front().ok_or(())?;
        self.sent -= command.size();
        self.rounds -= usize::from(ends_round);
        Ok(Some(command))
    }

    /// Hands a part of a reply to its slot.
    pub(super) fn hand(&mut self, id: SlotId, response: Response, done: &mut Done) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        match slot {
            Slot::Waits { waker, .. } => {
                done.wakers.extend(waker.take());
                *slot = Slot::Done(response);
            }
            // It came before the caller knew that it was late.
            Slot::Late(_) => *slot = Slot::Done(response),
            Slot::Left => drop(self.slots.remove(id)),
            Slot::Done(_) | Slot::Settles(_) => {
                if let (Slot::Settles(settler), Ok(part)) = (self.slots.remove(id), response) {
                    done.settled.push((settler, part));
                }
            }
        }
    }

    /// Hands a refusal to all of a command. Settlements that may be done later are handed on.
    pub(super) fn refuse(
        &mut self,
        command: Command,
        cause: &RedisError,
        error: &Error,
        is_definite: bool,
        done: &mut Done,
    ) {
        let mut failed = Vec::new();
        for Entry { id, job } in command.entries {
            match self.settler(id) {
                // It may go to another node, or come back when this one is able again.
                Some(settler) if is_definite => {
                    let (error, cause) = (error.shared(), Some(cause.clone()));
                    done.unsettled.push(Unsettled { job, settler, error, cause });
                }
                Some(settler) => failed.push(settler),
                None => {
                    let refused = Refused { error: error.shared(), cause: cause.clone(), job };
                    self.hand(id, Err(Failed::Refused(Box::new(refused))), done);
                }
            }
        }
        done.fail(failed, error);
    }

    /// Takes the settler of a slot, if it is that of a settlement.
    fn settler(&mut self, id: SlotId) -> Option<Settler> {
        if !matches!(self.slots.get(id), Some(Slot::Settles(_))) {
            return None;
        }
        match self.slots.remove(id) {
            Slot::Settles(settler) => Some(settler),
            _ => None,
        }
    }

    /// Has a command sent again with what the server lacks; returns it if that was done often enough.
    pub(super) fn load(&mut self, mut command: Command) -> Option<Command> {
        if command.loads == MOST_LOADS {
            return Some(command);
        }
        command.loads += 1;
        command.failure = None;
        self.again.push_back(command);
        None
    }

    /// Polls for the reply.
    pub(super) fn poll(&mut self, id: SlotId, waker: &Waker) -> Poll<Response> {
        match self.slots.get_mut(id) {
            Some(Slot::Waits { waker: kept, .. }) => {
                if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                    *kept = Some(waker.clone());
                }
                Poll::Pending
            }
            Some(slot @ Slot::Late(_)) => match mem::replace(slot, Slot::Waits { waker: None, is_late: true }) {
                Slot::Late(error) => Poll::Ready(Err(Failed::Late(error))),
                _ => Poll::Pending,
            },
            Some(Slot::Done(_)) => match self.slots.remove(id) {
                Slot::Done(response) => Poll::Ready(response),
                _ => Poll::Pending,
            },
            _ => Poll::Ready(Err(Failed::Error(lost_connection()))),
        }
    }

    /// The caller leaves. What waits is never sent; of what is in flight, the reply is dropped.
    pub(super) fn leave(&mut self, id: SlotId) {
        match self.slots.get_mut(id) {
            Some(slot @ (Slot::Waits { .. } | Slot::Late(_))) => *slot = Slot::Left,
            Some(Slot::Done(_)) => drop(self.slots.remove(id)),
            _ => {}
        }
        // No queue of those who left grows while nothing is sent.
        while let Some(entry) =
            self.waiting.front().filter(|entry| matches!(self.slots.get(entry.id), Some(Slot::Left)))
        {
            self.slots.remove(entry.id);
            self.checks -= entry.job.size();
            self.waiting.pop_front();
        }
    }

    /// Ends the wait of those whose time is over, also for commands on connections that were `replaced`, and sets when to
    /// look again.
    pub(super) fn expire(&mut self, now: Instant, replaced: &[&VecDeque<Command>], done: &mut Done) -> Expired {
        let (mut expired, mut next) = (Expired::default(), None::<Instant>);
        let mut await_until = |until: Instant| next = Some(next.map_or(until, |next: Instant| next.min(until)));
        done.wakers.append(&mut self.woken);
        let Self { slots, waiting, late, checks, .. } = self;
        // What was not sent leaves the queue with its caller.
        waiting.retain(|Entry { id, job }| {
            let Timeout { until, ends, .. } = job.timeout;
            if until > now && !matches!(slots.get(*id), Some(Slot::Left)) {
                await_until(until);
                return true;
            }
            *checks -= job.size();
            match slots.get_mut(*id) {
                Some(slot @ Slot::Waits { .. }) => {
                    expired.is_crowded |= ends <= now;
                    let ended = Slot::Done(Err(Failed::Error(late.error(now, job.timeout))));
                    if let Slot::Waits { waker, .. } = mem::replace(slot, ended) {
                        done.wakers.extend(waker);
                    }
                }
                Some(Slot::Settles(_)) => {
                    if let Slot::Settles(settler) = slots.remove(*id) {
                        let error = late.error(now, job.timeout);
                        done.unsettled.push(Unsettled { job: job.clone(), settler, error, cause: None });
                    }
                }
                Some(Slot::Left) => drop(slots.remove(*id)),
                _ => {}
            }
            false
        });
        let commands = self.flight.iter().map(|flight| &flight.command).chain(&self.again);
        let commands = commands.chain(replaced.iter().copied().flatten());
        for Entry { id, job } in commands.flat_map(|command| &command.entries) {
            let Some(slot @ Slot::Waits { is_late: false, .. }) = slots.get_mut(*id) else { continue };
            if job.timeout.until > now {
                await_until(job.timeout.until);
            } else if let Slot::Waits { waker, .. } = mem::replace(slot, Slot::Late(late.error(now, job.timeout))) {
                done.wakers.extend(waker);
            }
        }
        if let Some(front) = self.flight.front_mut() {
            if front.silent <= now {
                expired.is_silent = mem::replace(&mut front.heard, self.heard) == self.heard;
                if !mem::replace(&mut front.is_late, true) {
                    expired.late = front.command.permit();
                }
                // It is slow, and replies to others.
                front.silent = now + front.command.timeout().budget;
            }
            await_until(front.silent);
        }
        self.armed = next;
        expired
    }

    /// Gives the connection up. Requests that surely were not sent wait for the next one; returns the others.
    pub(super) fn disconnect(&mut self, done: &mut Done) -> VecDeque<Command> {
        self.number += 1;
        (self.line, self.writing, self.rest) = (Line::Down, false, Buffers::default());
        let first_unsent = self.flight.len() - mem::take(&mut self.unsent).min(self.flight.len());
        let unsent = self.flight.split_off(first_unsent);
        let sent: VecDeque<Command> = mem::take(&mut self.flight).into_iter().map(|flight| flight.command).collect();
        (self.sent, self.rounds) = (0, 0);
        let again = mem::take(&mut self.again);
        let mut given_up = Vec::new();
        for command in unsent.into_iter().map(|flight| flight.command).chain(again).rev() {
            if command.entries.iter().any(|entry| entry.job.tries >= MOST_TRIES) {
                given_up.push(command);
            } else {
                self.put_back(command);
            }
        }
        let error = lost_connection().unsent();
        for Entry { id, job } in given_up.into_iter().flat_map(|command| command.entries) {
            match self.settler(id) {
                Some(settler) => {
                    done.unsettled.push(Unsettled { job, settler, error: error.shared(), cause: None });
                }
                None => self.hand(id, Err(Failed::Error(error.shared())), done),
            }
        }
        done.wakers.append(&mut self.woken);
        sent
    }

    /// Has the requests of a command, which was not sent, wait before all others. Those whose time is over have failed.
    fn put_back(&mut self, command: Command) {
        for mut entry in command.entries.into_iter().rev() {
            match self.slots.get_mut(entry.id) {
                Some(slot @ Slot::Late(_)) => {
                    if let Slot::Late(error) = mem::replace(slot, Slot::Left) {
                        *slot = Slot::Done(Err(Failed::Error(error)));
                    }
                }
                Some(slot @ Slot::Waits { is_late: true, .. }) => {
                    let ended = Slot::Done(Err(Failed::Error(lost_connection())));
                    if let Slot::Waits { waker: Some(waker), .. } = mem::replace(slot, ended) {
                        // Not under way any more: there is nothing to refund.
                        self.woken.push(waker);
                    }
                }
                Some(Slot::Left) => drop(self.slots.remove(entry.id)),
                _ => {
                    entry.job.tries += 1;
                    self.checks += entry.job.size();
                    self.waiting.push_front(entry);
                }
            }
        }
    }

    /// Fails commands that were sent.
    pub(super) fn fail(&mut self, commands: VecDeque<Command>, error: &Error, done: &mut Done) {
        let mut failed = Vec::new();
        for Entry { id, .. } in commands.into_iter().flat_map(|command| command.entries) {
            match self.settler(id) {
                Some(settler) => failed.push(settler),
                None => self.hand(id, Err(Failed::Error(error.shared())), done),
            }
        }
        done.fail(failed, error);
    }

    /// Fails the decisions that waited before `by`, and hands all settlements on: none of them was sent. Returns the
    /// first of them.
    pub(super) fn fail_waiting(&mut self, by: Instant, error: &Error, done: &mut Done) -> Option<Box<Job>> {
        let mut first = None;
        for entry in mem::take(&mut self.waiting) {
            let Entry { id, job } = entry;
            self.checks -= job.size();
            if let Some(settler) = self.settler(id) {
                done.unsettled.push(Unsettled { job, settler, error: error.shared(), cause: None });
            } else if job.timeout.began() <= by || matches!(self.slots.get(id), Some(Slot::Left)) {
                self.hand(id, Err(Failed::Error(error.shared())), done);
                first = first.or(Some(job));
            } else {
                self.checks += job.size();
                self.waiting.push_back(Entry { id, job });
            }
        }
        first
    }

    /// Ends it with its runtime: nothing is asked any more.
    pub(super) fn close(&mut self, error: &Error, now: Instant, done: &mut Done) {
        let lost = self.disconnect(done);
        self.fail(lost, error, done);
        self.fail_waiting(now, error, done);
        self.end = Some(error.shared());
    }

    /// Notes a reply: a silence, if there was one, is over.
    pub(super) fn hear(&mut self) {
        self.heard += 1;
        self.late = Lateness::default();
    }

    /// Returns whether anything waits for a connection.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether nothing waits and nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.flight.is_empty() && self.again.is_empty() && !self.writing
    }
}

impl Done {
    fn fail(&mut self, settlers: Vec<Settler>, error: &Error) {
        if !settlers.is_empty() {
            self.failed.get_or_insert_with(|| (Vec::new(), error.shared())).0.extend(settlers);
        }
    }

    /// Does all but for settlements that were not done, which the caller hands on before.
    pub(super) fn finish(self) {
        self.wakers.into_iter().for_each(Waker::wake);
        for (settler, part) in self.settled {
            if let Part::Script(part) = part {
                settler.complete(Ok(part));
            }
        }
        if let Some((settlers, error)) = self.failed {
            fail_all(settlers, &error);
        }
    }
}

/// The error of a lost connection.
pub(super) fn lost_connection() -> Error {
    Error::new(Kind::Connection, "the connection to Redis was lost")
}
