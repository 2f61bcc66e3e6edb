//! Requests that wait, commands in flight, and the turn to write.
//!
//! All of this state is behind one lock, under which the methods run and calls are encoded. At most one caller writes
//! at a time: from [`Next::Write`] to [`Queue::written`]. If the connection is given up during a write, `written` has
//! no effect because the connection's [number](Queue::number) has changed.

use std::collections::VecDeque;
use std::mem;
use std::task::{Poll, Waker};

use deadpool_redis::redis::RedisError;
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use super::calls::{Packer, SharedSettings, calls, encode, fits};
use super::entries::{Command, Entries, Entry, EntryId, Ids, Progress};
use super::job::{Failed, Job, JobReply, NotGranted, Response, Settler, Timeout, Unsettled, Watch, fail_all};
use super::resp::{OutOfStep, Reply};
use super::socket::{Socket, register};
use super::sync::Arc;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::breaker::CallPermit;
use crate::store::redis::connections::{Failure, failed, is_definite};

const MAX_WAITING: usize = 65_536;

/// A round of no more checks than this is not split over several calls.
const MIN_BATCH: usize = 4;

/// Requests that are sent at once, each in a round of its own, because sharing calls would save less than it delays them.
const FEW: usize = 4;

const MAX_TRIES: u8 = 3;

/// More than one, because the server may be flushed after a load.
const MAX_LOADS: u8 = 3;

type Commands = SmallVec<[Command; 1]>;

pub(super) enum Line {
    Down,
    Connecting,
    Socket(Arc<Socket>),
}

pub(super) enum Next {
    Write(Round),
    Wake,
    Rest,
}

pub(super) struct Round {
    socket: Arc<Socket>,
    number: u64,
    bytes: Vec<u8>,
    count: usize,
    was_quiet: bool,
}

#[derive(Default)]
pub(super) struct Done {
    reports: Vec<(CallPermit, Option<Failure>)>,
    wakers: Vec<Waker>,
    settled: Vec<(Settler, JobReply)>,
    failed: Option<(Vec<Settler>, Error)>,
    unsettled: Vec<Unsettled>,
}

pub(super) struct Queue {
    pub(super) entries: Entries,
    waiting: VecDeque<EntryId>,
    /// Checks in `waiting`.
    checks: usize,
    again: VecDeque<Command>,
    flight: VecDeque<Command>,
    /// Commands of each replaced connection, on which only late replies are read.
    replaced: Vec<VecDeque<Command>>,
    sent: usize,
    rounds: usize,
    pub(super) line: Line,
    number: u64,
    packer: Packer,
    writing: bool,
    /// Bytes that the socket has not taken yet. The task writes them.
    rest: Vec<u8>,
    /// Number of commands at the end of `flight` that were certainly not sent.
    unsent: usize,
    heard: u64,
    /// Latest time at which the task's timer fires.
    pub(super) armed: Option<Instant>,
    /// The task has to reset its timer.
    pub(super) arms: bool,
    late: Lateness,
    settings: SharedSettings,
    /// Set once the runtime has ended. Nothing is sent after that.
    pub(super) end: Option<Error>,
    pub(super) is_last: bool,
    pub(super) task: Option<Waker>,
}

impl Queue {
    pub(super) fn new(settings: SharedSettings) -> Self {
        Self {
            entries: Entries::default(),
            waiting: VecDeque::new(),
            checks: 0,
            again: VecDeque::new(),
            flight: VecDeque::new(),
            replaced: Vec::new(),
            sent: 0,
            rounds: 0,
            line: Line::Down,
            number: 0,
            packer: Packer::default(),
            writing: false,
            rest: Vec::new(),
            unsent: 0,
            heard: 0,
            armed: None,
            arms: false,
            late: Lateness::default(),
            settings,
            end: None,
            is_last: false,
            task: None,
        }
    }

    pub(super) fn ask(&mut self, job: Job, waker: &Waker) -> Result<(EntryId, Next), Error> {
        if let Some(end) = &self.end {
            return Err(end.shared());
        }
        if self.waiting.len() >= MAX_WAITING {
            return Err(Error::new(Kind::Crowd, "too many decisions wait for Redis"));
        }
        self.arm(job.timeout.until);
        let size = job.size();
        let id =
            self.entries.insert(Entry { job, state: Progress::Waits { waker: Some(waker.clone()), is_late: false } });
        Ok((id, self.add(id, size)))
    }

    pub(super) fn settle(&mut self, job: Box<Job>, settler: Settler) -> Result<Next, (Box<Job>, Settler)> {
        if self.end.is_some() {
            return Err((job, settler));
        }
        // Then the task checks if the server is silent.
        self.arm(job.timeout.ends());
        let size = job.size();
        let id = self.entries.insert(Entry { job: *job, state: Progress::Settles(settler) });
        Ok(self.add(id, size))
    }

    fn arm(&mut self, until: Instant) {
        if self.armed.is_none_or(|armed| armed > until) {
            (self.armed, self.arms) = (Some(until), true);
        }
    }

    fn add(&mut self, id: EntryId, size: usize) -> Next {
        if let Line::Socket(socket) = &self.line
            && self.waiting.is_empty()
            && self.again.is_empty()
            && self.may_write()
        {
            let socket = Arc::clone(socket);
            let command = Command::new(smallvec![id], &self.entries);
            return self.begin(socket, [command]);
        }
        self.checks += size;
        self.waiting.push_back(id);
        match &self.line {
            Line::Down => Next::Wake,
            Line::Connecting => Next::Rest,
            Line::Socket(_) => self.next(),
        }
    }

    /// There is no writer, and less in flight than may be.
    pub(super) fn may_write(&self) -> bool {
        let usual = self.settings.in_flight;
        let most = if usual > 1 && self.entries.len() <= FEW { usual.max(FEW) } else { usual };
        !self.writing && self.rest.is_empty() && self.rounds < most
    }

    pub(super) fn next(&mut self) -> Next {
        let Line::Socket(socket) = &self.line else { return Next::Rest };
        if !self.may_write() {
            return Next::Rest;
        }
        let socket = Arc::clone(socket);
        self.take().map_or(Next::Rest, |commands| self.begin(socket, commands))
    }

    fn begin(&mut self, socket: Arc<Socket>, commands: impl IntoIterator<Item = Command>) -> Next {
        let (before, mut bytes) = (self.flight.len(), mem::take(&mut self.rest));
        self.writing = true;
        self.launch(commands);
        let Self { flight, entries, settings, packer, .. } = self;
        for command in flight.range_mut(before..) {
            // If the store's clock panics here, these commands get no reply, as if the server were silent.
            encode(command, entries, settings, packer, &mut bytes);
        }
        let (count, was_quiet) = (flight.len() - before, before == 0);
        Next::Write(Round { socket, number: self.number, bytes, count, was_quiet })
    }

    fn take(&mut self) -> Option<Commands> {
        if let Some(command) = self.again.pop_front() {
            return Some(smallvec![command]);
        }
        // Calls in flight should have equal sizes: a short call behind a long one ends before the callers of the long
        // one can send their next requests, and then the server is idle.
        let share = if self.sent == 0 {
            self.checks
        } else {
            (self.sent + self.checks).div_ceil(self.settings.in_flight).max(MIN_BATCH)
        };
        let most = share.min(self.settings.batch_size);
        let (mut ids, mut checks) = (Ids::with_capacity(most.min(self.waiting.len())), 0);
        while let Some(id) = self.waiting.front().copied() {
            let size = self.entries[id].job.size();
            if !ids.is_empty() && checks + size > most {
                break;
            }
            self.waiting.pop_front();
            self.checks -= size;
            if self.entries[id].is_left() {
                drop(self.entries.remove(id));
            } else {
                checks += size;
                ids.push(id);
            }
        }
        if ids.is_empty() { None } else { Some(calls(ids, &self.entries)) }
    }

    fn launch(&mut self, commands: impl IntoIterator<Item = Command>) {
        let (now, before) = (Instant::now(), self.flight.len());
        self.rounds += 1;
        self.flight.extend(commands);
        for command in self.flight.range_mut(before..) {
            self.sent += command.size;
            let silent = now + self.entries[command.ids[0]].job.timeout.budget;
            (command.heard, command.silent, command.is_late, command.ends_round) = (self.heard, silent, false, false);
        }
        if let Some(last) = self.flight.back_mut() {
            last.ends_round = true;
        }
        if let Some(silent) = self.flight.range(before..).map(|command| command.silent).min() {
            self.arm(silent);
        }
    }

    /// Ends a write: `rest` was not taken, nor anything of the last `unsent` commands.
    pub(super) fn written(&mut self, number: u64, rest: Vec<u8>, unsent: usize, may_go_on: bool) -> Next {
        if number != self.number {
            return Next::Wake;
        }
        (self.writing, self.unsent, self.rest) = (false, unsent, rest);
        if !self.rest.is_empty() {
            return Next::Wake;
        }
        if may_go_on {
            return self.next();
        }
        if self.may_write() && !(self.waiting.is_empty() && self.again.is_empty()) { Next::Wake } else { Next::Rest }
    }

    /// The caller writes the bytes and calls [`written`](Self::written).
    pub(super) fn take_rest(&mut self) -> Option<(Vec<u8>, u64, usize)> {
        if self.writing || self.rest.is_empty() {
            return None;
        }
        self.writing = true;
        Some((mem::take(&mut self.rest), self.number, self.unsent))
    }

    /// `None` if the reply is to a command sent before, such as `ASKING`.
    pub(super) fn replied(&mut self, reply: &Reply<'_>, replaced: Option<usize>) -> Result<Option<Command>, OutOfStep> {
        let flight = replaced.map_or(&mut self.flight, |place| &mut self.replaced[place]);
        let command = flight.front_mut().ok_or(OutOfStep)?;
        if command.is_before(reply) {
            return Ok(None);
        }
        if !fits(reply, command, &self.entries) {
            return Err(OutOfStep);
        }
        if replaced.is_none() {
            self.sent -= command.size;
            self.rounds -= usize::from(command.ends_round);
        }
        Ok(flight.pop_front())
    }

    pub(super) fn hand(&mut self, id: EntryId, response: Response, done: &mut Done) {
        let Some(Entry { state, .. }) = self.entries.get_mut(id) else { return };
        match state {
            Progress::Waits { waker, .. } => {
                done.wakers.extend(waker.take());
                *state = Progress::Done(response);
            }
            // The reply arrived before the caller noticed the timeout.
            Progress::Late(_) => *state = Progress::Done(response),
            Progress::Left => drop(self.entries.remove(id)),
            Progress::Done(_) | Progress::Settles(_) => {
                if let (Some((_, settler)), Ok(part)) = (self.settlement(id), response) {
                    done.settled.push((settler, part));
                }
            }
        }
    }

    pub(super) fn refuse(&mut self, command: &Command, cause: &RedisError, done: &mut Done) {
        let (error, is_definite, mut uncertain) = (failed(cause), is_definite(cause), Vec::new());
        let error = if is_definite { error.unsent() } else { error };
        for id in command.ids.iter().copied() {
            match self.settlement(id) {
                // Another node may execute it, or this one once it can again.
                Some((job, settler)) if is_definite => {
                    let (error, cause) = (error.shared(), Some(cause.clone()));
                    done.unsettled.push(Unsettled { job, settler, error, cause });
                }
                Some((_, settler)) => uncertain.push(settler),
                None => {
                    let job = Box::new(self.entries[id].job.clone());
                    let refused = Box::new(NotGranted { cause: cause.clone(), job });
                    self.hand(id, Err(Failed::Refused(error.shared(), refused)), done);
                }
            }
        }
        done.fail(uncertain, &error);
    }

    fn settlement(&mut self, id: EntryId) -> Option<(Box<Job>, Settler)> {
        if !self.entries[id].settles() {
            return None;
        }
        let Entry { job, state } = self.entries.remove(id);
        if let Progress::Settles(settler) = state { Some((Box::new(job), settler)) } else { None }
    }

    /// Queues the command with its script or library. Returns it after too many loads.
    pub(super) fn load(&mut self, mut command: Command) -> Option<Command> {
        if command.loads == MAX_LOADS {
            return Some(command);
        }
        command.loads += 1;
        command.failure = None;
        self.again.push_back(command);
        None
    }

    pub(super) fn poll(&mut self, id: EntryId, waker: &Waker) -> Poll<Response> {
        let lost = || Poll::Ready(Err(Failed::Error(lost_connection())));
        let Some(Entry { state, .. }) = self.entries.get_mut(id) else { return lost() };
        match state {
            Progress::Waits { waker: kept, .. } => {
                register(kept, waker);
                Poll::Pending
            }
            Progress::Late(_) => match mem::replace(state, Progress::Waits { waker: None, is_late: true }) {
                Progress::Late(error) => Poll::Ready(Err(Failed::Late(error))),
                _ => lost(),
            },
            Progress::Done(_) => match self.entries.remove(id).state {
                Progress::Done(response) => Poll::Ready(response),
                _ => lost(),
            },
            Progress::Left | Progress::Settles(_) => lost(),
        }
    }

    /// Drops a request's waiter. A request that waits is never sent. The reply to one in flight is dropped.
    pub(super) fn leave(&mut self, id: EntryId) {
        let Some(Entry { state, .. }) = self.entries.get_mut(id) else { return };
        match state {
            Progress::Waits { .. } | Progress::Late(_) => *state = Progress::Left,
            Progress::Done(_) => drop(self.entries.remove(id)),
            Progress::Left | Progress::Settles(_) => {}
        }
        // Otherwise the queue would grow with abandoned requests while nothing is sent.
        while let Some(id) = self.waiting.front().copied().filter(|id| self.entries[*id].is_left()) {
            self.waiting.pop_front();
            self.checks -= self.entries.remove(id).job.size();
        }
    }

    /// Times out requests, and sets the next timer. Returns `true` if the connection had no reply for a whole timeout.
    pub(super) fn expire(&mut self, now: Instant, done: &mut Done) -> bool {
        let (mut late, mut next) = (None, None::<Instant>);
        let mut await_until = |until: Instant| next = Some(next.map_or(until, |next: Instant| next.min(until)));
        // A request that was not sent is removed with its caller.
        for id in mem::take(&mut self.waiting) {
            let entry = &self.entries[id];
            let Job { timeout, permit, .. } = entry.job;
            if timeout.until > now && !entry.is_left() {
                await_until(timeout.until);
                self.waiting.push_back(id);
                continue;
            }
            self.checks -= self.entries[id].job.size();
            if self.entries[id].is_left() {
                drop(self.entries.remove(id));
                continue;
            }
            if timeout.ends() <= now && !self.entries[id].settles() {
                late = late.or(permit);
            }
            let error = self.late.error(now, timeout);
            self.fail_unsent(id, &error, done);
        }
        for id in
            self.flight.iter().chain(&self.again).chain(self.replaced.iter().flatten()).flat_map(|command| &command.ids)
        {
            let Some(Entry { job, state }) = self.entries.get_mut(*id) else { continue };
            let Progress::Waits { is_late: false, waker } = state else { continue };
            if job.timeout.until > now {
                await_until(job.timeout.until);
            } else {
                done.wakers.extend(waker.take());
                *state = Progress::Late(self.late.error(now, job.timeout));
            }
        }
        let mut is_silent = false;
        if let Some(front) = self.flight.front_mut() {
            if front.silent <= now {
                is_silent = mem::replace(&mut front.heard, self.heard) == self.heard;
                if !mem::replace(&mut front.is_late, true) {
                    late = front.permit.or(late);
                }
                // The server is slow, but replies to others.
                front.silent = now + self.entries[front.ids[0]].job.timeout.budget;
            }
            await_until(front.silent);
        }
        self.armed = next;
        done.report(late, Some(Failure::Late));
        is_silent
    }

    /// Gives the connection up. Unsent requests wait for the next connection. Returns the commands that were sent.
    pub(super) fn disconnect(&mut self, done: &mut Done) -> VecDeque<Command> {
        self.number += 1;
        (self.line, self.writing, self.rest, self.packer) = (Line::Down, false, Vec::new(), Packer::default());
        let first_unsent = self.flight.len() - mem::take(&mut self.unsent).min(self.flight.len());
        let unsent = self.flight.split_off(first_unsent);
        (self.sent, self.rounds) = (0, 0);
        let error = lost_connection().unsent();
        for command in unsent.into_iter().chain(mem::take(&mut self.again)).rev() {
            self.wait_again(command, &error, done);
        }
        mem::take(&mut self.flight)
    }

    pub(super) fn wait_again(&mut self, command: Command, error: &Error, done: &mut Done) {
        let is_given_up = command.ids.iter().any(|id| self.entries[*id].job.tries >= MAX_TRIES);
        for id in command.ids.into_iter().rev() {
            let waits = self.entries.get_mut(id).filter(|_| !is_given_up).filter(|entry| entry.is_needed());
            let Some(Entry { job, .. }) = waits else {
                self.fail_unsent(id, error, done);
                continue;
            };
            job.tries += 1;
            self.checks += job.size();
            self.waiting.push_front(id);
        }
    }

    pub(super) fn replace(&mut self, done: &mut Done) -> bool {
        let sent = self.disconnect(done);
        let is_sent = !sent.is_empty();
        self.replaced.extend(is_sent.then_some(sent));
        is_sent
    }

    pub(super) fn fail_replaced(&mut self, place: usize, error: &Error, done: &mut Done) {
        let commands = self.replaced.remove(place);
        self.fail(commands, error, done);
    }

    pub(super) fn is_replaced(&self, place: usize) -> bool {
        !self.replaced[place].is_empty()
    }

    fn fail_unsent(&mut self, id: EntryId, error: &Error, done: &mut Done) {
        match self.settlement(id) {
            Some((job, settler)) => {
                done.unsettled.push(Unsettled { job, settler, error: error.shared(), cause: None });
            }
            None => self.hand(id, Err(Failed::Error(error.shared())), done),
        }
    }

    pub(super) fn fail(&mut self, commands: VecDeque<Command>, error: &Error, done: &mut Done) {
        let mut failed = Vec::new();
        for id in commands.into_iter().flat_map(|command| command.ids) {
            match self.settlement(id) {
                Some((_, settler)) => failed.push(settler),
                None => self.hand(id, Err(Failed::Error(error.shared())), done),
            }
        }
        done.fail(failed, error);
    }

    /// Fails decisions that began before `by`, and returns all settlements as unsettled: none was sent.
    pub(super) fn fail_waiting(&mut self, by: Instant, error: &Error, done: &mut Done) -> Option<CallPermit> {
        let mut first = None;
        for id in mem::take(&mut self.waiting) {
            let entry = &self.entries[id];
            let (&Job { timeout, permit, .. }, settles) = (&entry.job, entry.settles());
            if settles || timeout.began <= by || entry.is_left() {
                self.checks -= entry.job.size();
                self.fail_unsent(id, error, done);
                if !settles {
                    first.get_or_insert(permit);
                }
            } else {
                self.waiting.push_back(id);
            }
        }
        first.flatten()
    }

    pub(super) fn close(&mut self, error: &Error, now: Instant, done: &mut Done) {
        let lost = self.disconnect(done);
        self.fail(lost, error, done);
        for commands in mem::take(&mut self.replaced) {
            self.fail(commands, error, done);
        }
        self.fail_waiting(now, error, done);
        self.end = Some(error.shared());
    }

    pub(super) fn hear(&mut self) {
        self.heard += 1;
        self.late = Lateness::default();
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Late replies to decisions do not count.
    pub(super) fn is_idle(&self) -> bool {
        let mut replaced = self.replaced.iter().flatten().flat_map(|command| &command.ids);
        let is_sent = self.waiting.is_empty() && self.flight.is_empty() && self.again.is_empty() && !self.writing;
        is_sent && !replaced.any(|id| self.entries[*id].settles())
    }
}

impl Round {
    /// Returns the connection's number, the bytes not taken, and how many of the last commands were certainly not sent.
    pub(super) fn write(self) -> (u64, Vec<u8>, usize) {
        let Self { socket, number, mut bytes, count, was_quiet } = self;
        // If the server closed a quiet connection, and the socket knows, no request is lost.
        let is_over = was_quiet && !socket.is_quiet();
        // The task gets the error, too, when it writes the rest.
        let result = if is_over { Ok(0) } else { socket.send(&bytes) };
        // A stream that fails may have passed on the first of several commands.
        let unsent = if matches!(result, Ok(0)) || result.is_err() && count == 1 { count } else { 0 };
        bytes.drain(..result.unwrap_or(0));
        (number, bytes, unsent)
    }
}

impl Done {
    pub(super) fn new(wakers: Vec<Waker>) -> Self {
        Self { wakers, ..Self::default() }
    }

    pub(super) fn report(&mut self, permit: Option<CallPermit>, failure: Option<Failure>) {
        self.reports.extend(permit.map(|permit| (permit, failure)));
    }

    fn fail(&mut self, settlers: Vec<Settler>, error: &Error) {
        if !settlers.is_empty() {
            self.failed.get_or_insert_with(|| (Vec::new(), error.shared())).0.extend(settlers);
        }
    }

    pub(super) fn wakes_one(&self) -> bool {
        self.wakers.len() == 1
    }

    /// Runs the effects. Returns the emptied list of wakers, whose memory is reused, and the settlements to send again.
    pub(super) fn finish(mut self, watch: &dyn Watch) -> (Vec<Waker>, Vec<Unsettled>) {
        for (permit, failure) in self.reports {
            watch.report(permit, failure.as_ref());
        }
        self.wakers.drain(..).for_each(Waker::wake);
        for (settler, part) in self.settled {
            settler.complete(part.script());
        }
        if let Some((settlers, error)) = self.failed {
            fail_all(settlers, &error);
        }
        (self.wakers, self.unsettled)
    }
}

pub(super) fn lost_connection() -> Error {
    Error::new(Kind::Connection, "the connection to Redis was lost")
}

/// Callers that time out in one silence share an error, so that layers count one failure.
#[derive(Debug, Default)]
struct Lateness(Option<(Instant, Error)>);

impl Lateness {
    fn error(&mut self, now: Instant, timeout: Timeout) -> Error {
        // An error is reused for a quarter of a timeout only, so that a longer silence counts again.
        let current = self.0.take().filter(|(since, _)| now.saturating_duration_since(*since) < timeout.budget / 4);
        let (_, error) = self.0.insert(current.unwrap_or_else(|| (now, timeout.error())));
        error.shared()
    }
}
