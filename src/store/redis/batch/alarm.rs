//! One timer for all that a lane waits for.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use tokio::time::{Instant, Sleep, sleep_until};

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
