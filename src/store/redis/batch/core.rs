//! What a lane is at: its connection, what waits for a time, and the timer for all of it.

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
    pub(super) line: Line,
    /// Connections that are only polled for late answers.
    pub(super) retired: SmallVec<[Connection; 1]>,
    /// Jobs that are asked again at a time.
    pub(super) later: Vec<(Instant, Vec<Job>)>,
    /// When it connects again for settlements, which still wait.
    pub(super) connect_again: Option<Instant>,
    pub(super) alarm: Alarm,
    pub(super) round: u64,
    /// What those receive who are late now.
    pub(super) late: Lateness,
    /// When such a failure of the server was last counted.
    pub(super) silent: Option<Instant>,
    /// Something can be sent at once.
    pub(super) has_more: bool,
}

/// What a runner does after its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It waits until something happens.
    Rest,
    /// It goes on.
    Work,
}

impl Core {
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

    /// Whether a call is on its way, or will be; of connections that are not used any more, one with settlements.
    pub(super) fn is_busy(&self) -> bool {
        let calls = matches!(&self.line, Line::Up(connection, _) if !connection.calls.is_empty());
        let settles = |connection: &Connection| connection.calls.iter().any(Call::settles);
        let is_settling = self.retired.iter().any(settles);
        calls || is_settling || !self.later.is_empty() || matches!(self.line, Line::Connecting(..))
    }
}

/// The way to the server.
pub(super) enum Line {
    Down,
    /// With leave, and since when.
    Connecting(Connecting, Option<Permit>, Instant),
    /// The first call takes the leave that connecting was given.
    Up(Box<Connection>, Option<Permit>),
}

/// A timer that stays set until it goes off.
///
/// A timer that is to go off before all others costs a system call, as the thread that waits for
/// events has to learn of it. Most answers come before they are late, so each would set one for
/// nothing. This one goes off at the earliest time that was ever set, and is set again then.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    is_set: bool,
}

impl Alarm {
    /// Goes off then, or earlier.
    pub(super) fn set(&mut self, until: Instant) {
        match &mut self.sleep {
            Some(sleep) if self.is_set && sleep.deadline() <= until => return,
            Some(sleep) => sleep.as_mut().reset(until),
            None => self.sleep = Some(Box::pin(sleep_until(until))),
        }
        self.is_set = true;
    }

    /// When it goes off.
    pub(super) fn until(&self) -> Option<Instant> {
        self.sleep.as_ref().filter(|_| self.is_set).map(|sleep| sleep.deadline())
    }

    /// Whether it went off; it is not set any more then.
    pub(super) fn goes_off(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(sleep) = self.sleep.as_mut().filter(|_| self.is_set) else { return false };
        let goes_off = sleep.as_mut().poll(cx).is_ready();
        self.is_set = !goes_off;
        goes_off
    }
}
