//! Requests to Redis, with their timeouts and results.
//!
//! A decision has a timeout, set for the store, and perhaps an earlier deadline, set by its caller. The end of a whole
//! timeout is a sign that the server is unavailable. The end of a short deadline is not. Settlements wait longer than a
//! timeout because no caller waits for them and their refunds must not be lost. All times are of tokio's clock, which
//! tests can pause.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep};

use crate::core::error::Kind;
use crate::core::{Error, Lines};
use crate::store::Deadline;
use crate::store::breaker::CallPermit;
use crate::store::redis::connections::Failure;
use crate::store::redis::wire::{ReplyPart, Request, Way, no_decision};

#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Job {
    pub(super) asked: Asked,
    pub(in crate::store::redis) timeout: Timeout,
    /// Slot of all its keys: 0 unless the server is a node of a Cluster.
    pub(in crate::store::redis) slot: u16,
    pub(in crate::store::redis) way: Way,
    /// Whether it has a call of its own, because it could fail others.
    pub(in crate::store::redis) is_alone: bool,
    /// Number of connections that were lost before it was sent.
    pub(super) tries: u8,
    /// Number of servers that refused it or could not be reached.
    pub(in crate::store::redis) hops: u8,
    pub(in crate::store::redis) permit: Option<CallPermit>,
}

/// Returns `true` for a value that can be the reply to a command.
pub(in crate::store::redis) type IsReply = fn(&Value) -> bool;

#[derive(Clone, Debug)]
pub(super) enum Asked {
    Script(Request),
    /// Any reply is accepted without a function.
    Command(Arc<Cmd>, Option<IsReply>),
}

#[derive(Debug)]
pub(in crate::store::redis) enum JobReply {
    Script(ReplyPart),
    Command(Value),
}

impl JobReply {
    pub(in crate::store::redis) fn script(self) -> Result<ReplyPart, Error> {
        match self {
            Self::Script(part) => Ok(part),
            Self::Command(_) => Err(no_decision()),
        }
    }
}

pub(super) type Response = Result<JobReply, Failed>;

/// Errors of callers. Callers that failed together have errors that count as one failure.
#[derive(Debug)]
pub(super) enum Failed {
    Error(Error),
    /// Timed out, but the reply may still arrive: see [`NoReply`](super::NoReply).
    Late(Error),
    Refused(Error, Box<NotGranted>),
}

#[derive(Debug)]
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server redirects nothing"))]
pub(in crate::store::redis) struct NotGranted {
    pub(in crate::store::redis) cause: RedisError,
    pub(in crate::store::redis) job: Box<Job>,
}

/// Result of a settlement. After an error that is not [unsent](Error::is_unsent), its changes may have been made.
pub(in crate::store::redis) type SettledReply = Result<ReplyPart, Error>;

/// The caller of a settlement. The settlement is sent even if the caller has left.
#[derive(Debug)]
pub(in crate::store::redis) struct Settler {
    place: OwnedSemaphorePermit,
    sender: oneshot::Sender<SettledReply>,
}

impl Settler {
    pub(super) fn new(place: OwnedSemaphorePermit) -> (Self, oneshot::Receiver<SettledReply>) {
        let (sender, receiver) = oneshot::channel();
        (Self { place, sender }, receiver)
    }

    pub(super) fn complete(self, result: SettledReply) {
        // First, so that a woken caller finds the permit free.
        drop(self.place);
        // It fails if no caller waits, which is common.
        drop(self.sender.send(result));
    }
}

/// Logs once for all settlements, because their callers seldom wait for the result.
#[cold]
pub(super) fn fail_all(settlers: Vec<Settler>, error: &Error) {
    static UNCERTAIN: Lines = Lines::ten();
    if settlers.is_empty() {
        return;
    }
    UNCERTAIN.log("", |more| {
        let (error, settlements) = (format!("{error:#}"), settlers.len());
        tracing::warn!(code = "settlement_uncertain", error, settlements, more, "settlements may be lost");
    });
    for settler in settlers {
        settler.complete(Err(error.shared()));
    }
}

#[derive(Debug)]
pub(in crate::store::redis) struct Unsettled {
    pub(in crate::store::redis) job: Box<Job>,
    pub(in crate::store::redis) settler: Settler,
    pub(in crate::store::redis) error: Error,
    /// Set if the settlement was sent and the server refused it.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server redirects nothing"))]
    pub(in crate::store::redis) cause: Option<RedisError>,
}

impl Job {
    #[inline]
    pub(in crate::store::redis) fn new(request: Request, timeout: Timeout, slot: u16) -> Self {
        Self::from_asked(Asked::Script(request), timeout, slot)
    }

    pub(in crate::store::redis) fn command(
        command: Cmd,
        is_reply: Option<IsReply>,
        timeout: Timeout,
        slot: u16,
    ) -> Box<Self> {
        let asked = Asked::Command(Arc::new(command), is_reply);
        Box::new(Self { is_alone: true, ..Self::from_asked(asked, timeout, slot) })
    }

    #[inline]
    fn from_asked(asked: Asked, timeout: Timeout, slot: u16) -> Self {
        let (way, is_alone, tries, hops, permit) = (Way::Plain, false, 0, 0, None);
        Self { asked, timeout, slot, way, is_alone, tries, hops, permit }
    }

    pub(super) fn size(&self) -> usize {
        match &self.asked {
            Asked::Script(request) => request.size(),
            Asked::Command(..) => 1,
        }
    }

    pub(super) fn request(&self) -> Option<&Request> {
        match &self.asked {
            Asked::Script(request) => Some(request),
            Asked::Command(..) => None,
        }
    }
}

#[cold]
pub(in crate::store::redis) fn stopped() -> Error {
    Error::new(Kind::Store, "the call to Redis was stopped: its runtime has ended")
}

/// Longer than any useful timeout, and short enough to be added to an `Instant`.
const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// Time in which a settlement must be sent.
const SETTLEMENT_WAIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct Timeout {
    pub(in crate::store::redis) began: Instant,
    /// The whole timeout, at most one year. A server that is silent for so long is unavailable.
    pub(in crate::store::redis) budget: Duration,
    /// Time after which the reply is not needed: the deadline, the end of the timeout, or later for a settlement.
    pub(in crate::store::redis) until: Instant,
}

impl Timeout {
    pub(in crate::store::redis) fn new(budget: Duration) -> Self {
        Self::by(budget, Deadline::none())
    }

    /// A `deadline` in the past ends the wait at once.
    pub(in crate::store::redis) fn by(budget: Duration, deadline: Deadline) -> Self {
        let (began, budget) = (Instant::now(), budget.min(FOREVER));
        let ends = began + budget;
        Self { began, budget, until: deadline.instant().map_or(ends, |at| at.min(ends)) }
    }

    pub(in crate::store::redis) fn for_settlement(budget: Duration) -> Self {
        let timeout = Self::new(budget);
        Self { until: timeout.began + timeout.budget.max(SETTLEMENT_WAIT), ..timeout }
    }

    pub(super) fn ends(self) -> Instant {
        self.began + self.budget
    }

    pub(in crate::store::redis) fn error(self) -> Error {
        let mut time = self.until.saturating_duration_since(self.began);
        if self.until < self.ends() {
            // A deadline, rounded up because timers count milliseconds.
            time = Duration::from_millis(u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX));
        }
        Error::new(Kind::Timeout, format!("Redis did not reply within {time:?}"))
    }
}

/// First pause before a settlement is sent again, which doubles up to `MAX_PAUSE`.
const PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Receives the outcomes of calls. Its methods must not block.
pub(in crate::store::redis) trait Watch: Send + Sync {
    fn report(&self, permit: CallPermit, failure: Option<&Failure>) {
        let _ = (permit, failure);
    }

    /// Returns `true` for a node of a Cluster.
    fn may_redirect(&self) -> bool {
        false
    }

    fn settle_again(&self, settlement: Unsettled) -> Option<Unsettled>;
}

pub(super) type SharedWatch = Arc<dyn Watch>;

/// First waits for a pause. The end of the runtime ends the pause early.
pub(super) fn settle_later(watch: &Arc<dyn Watch>, runtime: &Handle, unsettled: Vec<Unsettled>) {
    let hops = unsettled.iter().map(|unsettled| unsettled.job.hops).min().unwrap_or_default();
    let pause = PAUSE.saturating_mul(1 << hops.min(10)).min(MAX_PAUSE);
    let later = Later { unsettled, watch: Arc::clone(watch) };
    runtime.spawn(async move {
        sleep(pause).await;
        drop(later);
    });
}

pub(super) fn settle_again(watch: &dyn Watch, unsettled: Vec<Unsettled>) {
    let (now, mut late) = (Instant::now(), None);
    for mut unsettled in unsettled {
        unsettled.job.hops = unsettled.job.hops.saturating_add(1);
        let is_late = unsettled.job.timeout.until <= now;
        let failed = if is_late { Some(unsettled) } else { watch.settle_again(unsettled) };
        if let Some(Unsettled { settler, error, .. }) = failed {
            late.get_or_insert_with(|| (error, Vec::new())).1.push(settler);
        }
    }
    if let Some((error, settlers)) = late {
        fail_all(settlers, &error.unsent());
    }
}

/// Settlements that are sent again on drop, because the end of a runtime drops them.
struct Later {
    unsettled: Vec<Unsettled>,
    watch: Arc<dyn Watch>,
}

impl Drop for Later {
    fn drop(&mut self) {
        settle_again(&*self.watch, std::mem::take(&mut self.unsettled));
    }
}
