//! The work on a lane: connecting, sending, receiving, and looking at the clock.

use std::task::{Context, Poll};
use std::time::Duration;

use deadpool_redis::redis::RedisError;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::super::job::Job;
use super::super::patience::{Failure, Patience, failed, is_lost, is_of_the_connection};
use super::alarm::Alarm;
use super::call::{self, Call};
use super::connection::{Answer, Connection};
use super::lane::Lane;
use super::server::{Connecting, Redirected};
use crate::Error;
use crate::error::Kind;
use crate::store::breaker::Permit;

/// Calls in flight at once; what comes meanwhile leaves in the next.
const CALLS: usize = 2;

/// How often a job is sent anew that was surely not sent before.
const MOST_TRIES: u8 = 3;

/// Connections that are only polled for late answers.
const MOST_RETIRED: usize = 4;

/// For so long.
const LATE_ANSWERS: Duration = Duration::from_secs(10);

/// For so long once the server answers on a newer one.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Before keys of a slot that is on its way to another server are asked for again.
const SLOT_PAUSE: Duration = Duration::from_millis(10);

/// What one runner at a time works on.
pub(super) struct Core {
    line: Line,
    retired: SmallVec<[Connection; 1]>,
    /// Jobs that are asked again at a time.
    later: Vec<(Instant, Vec<Job>)>,
    alarm: Alarm,
    round: u64,
    /// What those receive who are late now, and since when: late at once is one failure.
    late: Option<(Instant, Error)>,
    /// When such a failure of the server was last counted.
    silent: Option<Instant>,
    /// Something was put back that can be sent at once.
    has_more: bool,
}

/// The way to the server.
enum Line {
    Down,
    Connecting(Connecting, Option<Permit>),
    /// The first call takes the leave that connecting was given.
    Up(Connection, Option<Permit>),
}

impl Core {
    pub(super) fn new() -> Self {
        let (retired, later) = (SmallVec::new(), Vec::new());
        Self {
            line: Line::Down,
            retired,
            later,
            alarm: Alarm::default(),
            round: 0,
            late: None,
            silent: None,
            has_more: false,
        }
    }

    /// Does all that can be done now. Returns whether there is more to do at once.
    pub(super) fn work(&mut self, lane: &Lane, cx: &mut Context<'_>) -> bool {
        self.receive(lane, cx);
        self.send(lane, cx);
        // What happened so far was done here, or is looked at below.
        lane.turns.calm();
        self.receive(lane, cx);
        let connected = self.connect(lane, cx);
        self.poll_retired(lane, cx);
        self.look_at_the_clock(lane, cx);
        std::mem::take(&mut self.has_more) || connected
    }

    /// Whether a call is on its way, or will be.
    pub(super) fn is_busy(&self) -> bool {
        let calls = matches!(&self.line, Line::Up(connection, _) if !connection.calls.is_empty());
        calls || !self.later.is_empty() || matches!(self.line, Line::Connecting(..))
    }

    /// Receives what came, and answers.
    fn receive(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        let Line::Up(connection, _) = &mut self.line else { return };
        let (has_ended, answered) = (connection.drive(cx), connection.answered(cx));
        let fresh = connection.calls.iter().chain(answered.iter().map(|(call, _)| call));
        let unsent = has_ended && fresh.filter(|call| !call.may_be_sent).count() == 1;
        let mut lost = Vec::new();
        for (call, answer) in answered {
            match answer {
                Err(error) if is_lost(&error) => lost.push((call, Some(error))),
                answer => self.finish(lane, call, answer),
            }
        }
        let Line::Up(connection, _) = &mut self.line else { return };
        if has_ended || !lost.is_empty() {
            lost.extend(connection.calls.drain(..).map(|call| (call, None)));
            return self.lose(lane, lost, unsent);
        }
        connection.calls.iter_mut().for_each(|call| call.may_be_sent = true);
    }

    /// Makes calls with what waits, unless two are on their way.
    fn send(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        let Line::Up(connection, leave) = &mut self.line else { return };
        while connection.rounds() < CALLS {
            let jobs = lane.turns.with(|queue| queue.take(lane.settings.batch_size));
            if jobs.is_empty() {
                return;
            }
            self.round += 1;
            for mut jobs in lane.settings.parts(jobs) {
                let permit = match leave.take().map_or_else(|| lane.server.ask(), |permit| Ok(Some(permit))) {
                    Ok(permit) => permit,
                    Err(error) => {
                        call::fail(jobs, &error);
                        continue;
                    }
                };
                let answering = lane.settings.call(connection.shared.handle.clone(), &mut jobs);
                let mut call = Call::new(jobs, self.round, connection.shared.answers(), answering);
                call.permit = permit;
                self.alarm.set(call.until);
                call.start(cx);
                connection.calls.push(call);
            }
        }
    }

    /// Ends a call that was answered.
    fn finish(&mut self, lane: &Lane, call: Call, answer: Answer) {
        let Call { jobs, permit, .. } = call;
        let error = match answer {
            Ok(value) => {
                self.is_answered();
                lane.server.learn(permit, None);
                return call::answer(jobs, value);
            }
            Err(error) => error,
        };
        if is_of_the_connection(&error) {
            self.retire(lane);
        } else {
            self.is_answered();
        }
        let jobs = match lane.server.redirect(jobs, &error) {
            Redirected::Elsewhere => Vec::new(),
            Redirected::Later(jobs) => {
                self.ask_alone(lane, jobs);
                Vec::new()
            }
            Redirected::Failed(jobs) => jobs,
        };
        let shared = lane.server.error(failed(&error));
        lane.server.learn(permit, Some(&Failure::Answered(error)));
        call::fail(jobs, &shared);
    }

    /// Asks again for jobs of a slot that is on its way to another server: each alone, for one must not
    /// fail with another one, and not again at once.
    fn ask_alone(&mut self, lane: &Lane, mut jobs: Vec<Job>) {
        if jobs.len() > 1 {
            jobs.iter_mut().for_each(|job| job.is_alone = true);
            lane.turns.with(|queue| queue.put_back(jobs.into_iter()));
            self.has_more = true;
            return;
        }
        let again = Instant::now() + SLOT_PAUSE;
        jobs.iter_mut().for_each(|job| job.is_alone = true);
        self.alarm.set(again);
        self.later.push((again, jobs));
    }

    fn is_answered(&mut self) {
        (self.late, self.silent) = (None, None);
        if !self.retired.is_empty() {
            self.expect_last_answers();
        }
        if let Line::Up(connection, _) = &self.line {
            connection.shared.count_answer();
        }
    }

    /// Gives up a connection that has ended. All its calls fail as one; what was surely not sent is
    /// sent on the next one.
    fn lose(&mut self, lane: &Lane, lost: Vec<(Call, Option<RedisError>)>, unsent: bool) {
        self.disconnect(lane);
        let mut failure: Option<Error> = None;
        for (call, error) in lost {
            let Call { mut jobs, permit, may_be_sent, .. } = call;
            if unsent && !may_be_sent && jobs.iter().all(|job| job.tries < MOST_TRIES) {
                jobs.iter_mut().for_each(|job| job.tries += 1);
                lane.turns.with(|queue| queue.put_back(jobs.into_iter()));
                lane.server.learn(permit, Some(&Failure::Unsent));
                continue;
            }
            let is_first = failure.is_none();
            let shared = failure.get_or_insert_with(|| lost_connection(error.as_ref()));
            let told = if is_first { Failure::NotConnected(shared.shared()) } else { Failure::Unsent };
            lane.server.learn(permit, Some(&told));
            call::fail(std::mem::take(&mut jobs), &lane.server.error(shared.shared()));
        }
    }

    /// Connects if something waits for it. Returns whether that has just been done.
    fn connect(&mut self, lane: &Lane, cx: &mut Context<'_>) -> bool {
        if matches!(self.line, Line::Down) {
            if lane.turns.with(|queue| queue.is_empty()) {
                return false;
            }
            let permit = match lane.server.ask() {
                Ok(permit) => permit,
                Err(error) => {
                    // Those who want the connection itself find out by it whether the server is back.
                    if lane.refuse(&error) {
                        return false;
                    }
                    None
                }
            };
            self.line = Line::Connecting(lane.server.connect(), permit);
        }
        if let Line::Connecting(connecting, permit) = &mut self.line {
            let Poll::Ready(connected) = connecting.as_mut().poll(cx) else { return false };
            let permit = permit.take();
            match connected {
                Ok(link) => {
                    let connection = Connection::new(link);
                    lane.publish(Some(connection.shared.clone()));
                    self.line = Line::Up(connection, permit);
                    (self.late, self.silent) = (None, None);
                }
                Err(error) => {
                    self.line = Line::Down;
                    lane.clear(&lane.server.error(error.shared()));
                    lane.server.learn(permit, Some(&Failure::NotConnected(error)));
                    return false;
                }
            }
            self.lend(lane);
            return true;
        }
        self.lend(lane);
        false
    }

    /// Gives the connection to those who asked for it.
    fn lend(&mut self, lane: &Lane) {
        let Line::Up(connection, _) = &self.line else { return };
        let (borrowers, discarded) = lane.turns.with(|queue| (queue.take_borrowers(), queue.discarded.take()));
        for borrower in borrowers {
            let _ = borrower.answer.send(Ok(connection.shared.clone()));
        }
        if discarded == Some(connection.shared.number) {
            self.retire(lane);
        }
    }

    /// Makes no further calls on the connection. Late answers still come.
    fn retire(&mut self, lane: &Lane) {
        if let Line::Up(mut connection, _) = self.disconnect(lane)
            && !connection.calls.is_empty()
        {
            let until = Instant::now() + LATE_ANSWERS;
            connection.polled_until = Some(until);
            self.alarm.set(until);
            if self.retired.len() == MOST_RETIRED {
                self.retired.remove(0);
            }
            self.retired.push(connection);
        }
    }

    /// The server answers on a newer connection: what is to come on an older one is there, or lost.
    #[cold]
    fn expect_last_answers(&mut self) {
        let until = Instant::now() + LAST_ANSWERS;
        self.alarm.set(until);
        for connection in &mut self.retired {
            connection.polled_until = connection.polled_until.map(|other| other.min(until));
        }
    }

    fn disconnect(&mut self, lane: &Lane) -> Line {
        lane.publish(None);
        std::mem::replace(&mut self.line, Line::Down)
    }

    fn poll_retired(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        for mut connection in std::mem::take(&mut self.retired) {
            let has_ended = connection.drive(cx);
            for (call, answer) in connection.answered(cx) {
                match answer {
                    Ok(value) => call::answer(call.jobs, value),
                    Err(error) => call::fail(call.jobs, &lane.server.error(failed(&error))),
                }
            }
            if has_ended || connection.calls.is_empty() {
                let lost = lost_connection(None);
                connection.calls.drain(..).for_each(|call| call::fail(call.jobs, &lost));
            } else {
                self.retired.push(connection);
            }
        }
    }

    /// Ends the wait of those who are late, if somebody may be.
    fn look_at_the_clock(&mut self, lane: &Lane, cx: &mut Context<'_>) {
        if let Some(first) = lane.turns.with(|queue| queue.first_late()) {
            self.alarm.set(first);
        }
        while self.alarm.goes_off(cx) {
            let now = Instant::now();
            let next = [self.ask_again(lane, now), self.late_jobs(lane, now), self.late_calls(lane, now)];
            if let Some(next) = next.into_iter().flatten().min() {
                self.alarm.set(next);
            }
        }
    }

    /// Asks again what is due by now; returns when the next is.
    fn ask_again(&mut self, lane: &Lane, now: Instant) -> Option<Instant> {
        let (due, later) = std::mem::take(&mut self.later).into_iter().partition(|(again, _)| *again <= now);
        self.later = later;
        let due: Vec<(Instant, Vec<Job>)> = due;
        let due = due.into_iter().flat_map(|(_, jobs)| jobs).filter(|job| !job.is_idle());
        let here: Vec<Job> = due.filter_map(|job| lane.server.again(job)).collect();
        self.has_more |= !here.is_empty();
        lane.turns.with(|queue| queue.put_back(here.into_iter()));
        self.later.iter().map(|(again, _)| *again).min()
    }

    /// Ends the wait of jobs that were not sent in time; returns when the next one is late.
    fn late_jobs(&mut self, lane: &Lane, now: Instant) -> Option<Instant> {
        let (late, borrowers, next) = lane.turns.with(|queue| {
            let (late, borrowers) = queue.take_late(now);
            (late, borrowers, queue.first_late())
        });
        if let Some(patience) = late.iter().find(|job| !job.is_idle()).map(|job| job.patience) {
            let error = self.late_error(now, patience);
            // Who waits for a slot on its way does not wait for this server, and who had less time than
            // the budget did not wait for long.
            let waited = late.iter().find(|job| !job.is_alone && job.patience.ends <= now);
            if waited.is_some_and(|job| self.is_silent_anew(now, job.patience.budget)) {
                lane.server.waited();
            }
            call::fail(late, &lane.server.error(error));
        }
        for borrower in borrowers {
            let _ = borrower.answer.send(Err(borrower.patience.late()));
        }
        next
    }

    /// Ends the wait of those whose calls were not answered in time; returns when the next one is late.
    /// A connection that answered nobody meanwhile is not used again.
    fn late_calls(&mut self, lane: &Lane, now: Instant) -> Option<Instant> {
        self.late_of_retired(lane, now);
        let Line::Up(connection, _) = &mut self.line else { return self.retired_until() };
        let mut calls = std::mem::take(&mut connection.calls);
        let (answers, mut is_stuck) = (connection.shared.answers(), false);
        for call in calls.iter_mut().filter(|call| !call.is_late) {
            self.late_callers(lane, call, now);
            if call.is_late {
                is_stuck |= call.answers_before == answers;
            }
        }
        let next = calls.iter().filter_map(Call::next_late).min();
        if let Line::Up(connection, _) = &mut self.line {
            connection.calls = calls;
        }
        if is_stuck {
            self.retire(lane);
        }
        [next, self.retired_until()].into_iter().flatten().min()
    }

    fn late_of_retired(&mut self, lane: &Lane, now: Instant) {
        let mut retired = std::mem::take(&mut self.retired);
        retired.retain(|connection| connection.polled_until.is_none_or(|until| until > now));
        for connection in &mut retired {
            for call in connection.calls.iter_mut().filter(|call| !call.is_late) {
                self.late_callers(lane, call, now);
            }
        }
        self.retired = retired;
    }

    fn retired_until(&self) -> Option<Instant> {
        let calls = self.retired.iter().flat_map(|connection| connection.calls.iter().filter_map(Call::next_late));
        let ends = self.retired.iter().filter_map(|connection| connection.polled_until);
        calls.chain(ends).min()
    }

    /// Ends the wait of the callers of a call who are late.
    fn late_callers(&mut self, lane: &Lane, call: &mut Call, now: Instant) {
        let mut late = call.jobs.iter_mut().filter(|job| job.is_awaited() && job.patience.until <= now).peekable();
        if let Some(patience) = late.peek().map(|job| job.patience) {
            let error = lane.server.error(self.late_error(now, patience));
            late.for_each(|job| job.is_late(|| error.shared()));
        }
        if call.until <= now {
            call.is_late = true;
            let budget = call.jobs.first().map_or(Duration::ZERO, |job| job.patience.budget);
            let told = if self.is_silent_anew(now, budget) { Failure::Late } else { Failure::Unsent };
            lane.server.learn(call.permit.take(), Some(&told));
        }
    }

    /// The error of those who are late now: who waited for the same silence tells nothing new.
    fn late_error(&mut self, now: Instant, patience: Patience) -> Error {
        match &self.late {
            Some((since, error)) if is_same(*since, now, patience.budget) => error.shared(),
            _ => {
                let error = patience.late();
                let shared = error.shared();
                self.late = Some((now, error));
                shared
            }
        }
    }

    /// Whether the server's silence is another failure than the one that was counted last.
    fn is_silent_anew(&mut self, now: Instant, budget: Duration) -> bool {
        let is_new = self.silent.is_none_or(|since| !is_same(since, now, budget));
        if is_new {
            self.silent = Some(now);
        }
        is_new
    }
}

/// Whether who was late then and who is late now waited for the same.
fn is_same(then: Instant, now: Instant, budget: Duration) -> bool {
    now.saturating_duration_since(then) < budget / 4
}

fn lost_connection(cause: Option<&RedisError>) -> Error {
    match cause {
        Some(cause) => failed(cause),
        None => Error::new(Kind::Connection, "the connection to Redis was lost"),
    }
}
