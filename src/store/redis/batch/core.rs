//! The core of a lane: its connection, what waits for a time, and the timer for all of it.
//!
//! One runner at a time has the core and works on it without a lock (`turns.rs`). What other
//! threads have to change, the queue, is not part of it. The work is spread over files by what it
//! is about: `work.rs` (the order of a round, sending), `line.rs` (connecting), `receive.rs`
//! (replies) and `clock.rs` (timeouts).
//!
//! It is boxed, so that taking and returning it moves a pointer under the lock of the turns.
//!
//! Invariant: whatever the core waits for is either registered with the lane's waker (the
//! connection's driver, calls, a connection attempt) or has its time in the [`Alarm`]. A resting
//! lane thus needs no periodic wake-up.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use smallvec::SmallVec;
use tokio::time::{Instant, Sleep, sleep_until};

use super::call::Call;
use super::connection::Connection;
use super::job::Job;
use super::server::Connecting;
use super::timeout::Lateness;
use crate::store::breaker::Permit;

/// What one runner at a time works on.
pub(super) struct Core {
    /// The connection that calls are made on, or the attempt to make one.
    pub(super) line: Line,
    /// Connections that receive late replies only; the oldest is first. At most 4.
    pub(super) retired: SmallVec<[Connection; 1]>,
    /// Jobs that are sent again at a time: those of a slot that is being moved, and settlements
    /// whose server's breaker is open.
    pub(super) later: Vec<(Instant, Vec<Job>)>,
    /// When the lane connects again for settlements that wait; `None` unless an attempt failed, or
    /// the circuit breaker refused one.
    pub(super) connect_again: Option<Instant>,
    /// The timer for the earliest of all times above and below.
    pub(super) alarm: Alarm,
    /// The number of the last round of calls.
    pub(super) round: u64,
    /// The error of callers that time out now: one for all that wait through the same silence.
    pub(super) late: Lateness,
    /// When a timeout was last counted as a failure of the server; reset by each reply.
    pub(super) silent: Option<Instant>,
    /// Whether something can be done at once, so that the runner goes on instead of resting.
    pub(super) has_more: bool,
}

/// What a runner does after a round of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It ends its turn, unless something happened meanwhile.
    Rest,
    /// It begins another round.
    Work,
}

impl Core {
    /// The core of a lane that is not connected.
    pub(super) fn new() -> Self {
        let (retired, later) = (SmallVec::new(), Vec::new());
        Self {
            line: Line::Down,
            retired,
            later,
            connect_again: None,
            alarm: Alarm::default(),
            round: 0,
            late: Lateness::default(),
            silent: None,
            has_more: false,
        }
    }

    /// Returns whether a call is in flight or will be, so that an unused lane has to continue.
    /// On retired connections, only calls with settlements count: no task is left to refund the
    /// others.
    pub(super) fn is_busy(&self) -> bool {
        let calls = matches!(&self.line, Line::Up(connection, _) if !connection.calls.is_empty());
        let settles = |connection: &Connection| connection.calls.iter().any(Call::settles);
        let is_settling = self.retired.iter().any(settles);
        calls || is_settling || !self.later.is_empty() || matches!(self.line, Line::Connecting(..))
    }
}

/// The connection to the server. `line.rs` has its transitions.
pub(super) enum Line {
    /// There is no connection, and no attempt to make one.
    Down,
    /// An attempt to connect, with the breaker's permit for it, if any, and when it began.
    Connecting(Connecting, Option<Permit>, Instant),
    /// A connection, and the permit with which it was made: the first call takes it, so that the
    /// probe of a breaker ends with a call and not with the connection.
    Up(Box<Connection>, Option<Permit>),
}

/// A timer that stays set until it goes off.
///
/// Setting a timer earlier than all others of a runtime costs a system call, as the thread that
/// waits for events has to be woken. Most replies come before their timeout, so each call would
/// set one for nothing. This timer goes off at the earliest time that was ever set, which may be
/// for nothing, and is set again then.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    /// The timer, kept to be reset; `None` until it is first set.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether it has yet to go off.
    is_set: bool,
}

impl Alarm {
    /// Has it go off at `until`, or earlier if it is set to an earlier time.
    pub(super) fn set(&mut self, until: Instant) {
        match &mut self.sleep {
            Some(sleep) if self.is_set && sleep.deadline() <= until => return,
            Some(sleep) => sleep.as_mut().reset(until),
            None => self.sleep = Some(Box::pin(sleep_until(until))),
        }
        self.is_set = true;
    }

    /// Returns when it goes off; `None` if it is not set.
    pub(super) fn until(&self) -> Option<Instant> {
        self.sleep.as_ref().filter(|_| self.is_set).map(|sleep| sleep.deadline())
    }

    /// Returns whether it went off, after which it is not set any more. Otherwise the task is woken
    /// when it does.
    pub(super) fn goes_off(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(sleep) = self.sleep.as_mut().filter(|_| self.is_set) else { return false };
        let goes_off = sleep.as_mut().poll(cx).is_ready();
        self.is_set = !goes_off;
        goes_off
    }
}
