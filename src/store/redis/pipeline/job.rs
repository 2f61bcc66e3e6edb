//! A request on its way to Redis, how long its reply is waited for, and what becomes of it.
//!
//! A decision has a timeout, set for the store, and perhaps an earlier deadline, set by its caller. Both are kept, as they
//! mean different things: the end of a whole timeout is a sign that the server is unavailable, whereas a short deadline is
//! not. Settlements wait longer than a timeout, as no caller waits for them and their refunds must not be lost. All times
//! are of tokio's clock, which tests can pause.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep};

use crate::core::error::Kind;
use crate::core::{Error, Lines};
use crate::store::Deadline;
use crate::store::breaker::Permit;
use crate::store::redis::connections::Failure;
use crate::store::redis::wire::{ReplyPart, Request, Way, no_decision};

/// One request, with what is needed to send it again elsewhere.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Job {
    pub(super) asked: Asked,
    pub(in crate::store::redis) timeout: Timeout,
    /// The slot of its keys, which all are in the same one: 0 unless the server is a node of a Cluster.
    pub(in crate::store::redis) slot: u16,
    /// How the call is sent: plainly, or after `ASKING` while the slot is being moved.
    pub(in crate::store::redis) way: Way,
    /// Whether it must not share a call, so that it cannot fail others.
    pub(in crate::store::redis) is_alone: bool,
    /// How often it waited again because a connection was lost before it was sent.
    pub(super) tries: u8,
    /// How often it was sent again because a server refused it, or could not be reached.
    pub(in crate::store::redis) hops: u8,
    /// The permit of the server's circuit breaker, if it has one.
    pub(in crate::store::redis) permit: Option<Permit>,
}

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    /// A part of a call of the script.
    Script(Request),
    /// A command of its own.
    Command(Arc<Cmd>),
}

/// What is replied.
#[derive(Debug)]
pub(in crate::store::redis) enum JobReply {
    Script(ReplyPart),
    Command(Value),
}

impl JobReply {
    /// Returns the part of the reply to a call of the script.
    ///
    /// # Errors
    ///
    /// If it is the reply to a command.
    pub(in crate::store::redis) fn script(self) -> Result<ReplyPart, Error> {
        match self {
            Self::Script(part) => Ok(part),
            Self::Command(_) => Err(no_decision()),
        }
    }
}

/// What a caller receives.
pub(super) type Response = Result<JobReply, Failed>;

/// Why there is no reply. Callers that failed together have errors that count as one failure.
#[derive(Debug)]
pub(super) enum Failed {
    /// There will be none.
    Error(Error),
    /// There was none in time. It may still come: see [`NoReply`](super::NoReply).
    Late(Error),
    /// The server replied with an error.
    Refused(Error, Box<Refused>),
}

/// A request that the server refused.
#[derive(Debug)]
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server redirects nothing"))]
pub(in crate::store::redis) struct Refused {
    pub(in crate::store::redis) cause: RedisError,
    pub(in crate::store::redis) job: Box<Job>,
}

/// What the caller of a settlement receives. After an error that is not [unsent](Error::is_unsent) the changes may have
/// been made or not.
pub(in crate::store::redis) type SettledReply = Result<ReplyPart, Error>;

/// Whoever waits for a settlement, if anybody does: it is sent in any case.
#[derive(Debug)]
pub(in crate::store::redis) struct Settler {
    /// Its place among the settlements on their way, held until it is done.
    place: OwnedSemaphorePermit,
    sender: oneshot::Sender<SettledReply>,
}

impl Settler {
    pub(super) fn new(place: OwnedSemaphorePermit) -> (Self, oneshot::Receiver<SettledReply>) {
        let (sender, receiver) = oneshot::channel();
        (Self { place, sender }, receiver)
    }

    pub(super) fn complete(self, result: SettledReply) {
        // Its place is free for whoever is woken.
        drop(self.place);
        // Mostly nobody waits.
        drop(self.sender.send(result));
    }
}

/// Completes settlements with one error, and logs it once, as their callers seldom wait for the result.
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

/// A settlement that was surely not done.
#[derive(Debug)]
pub(in crate::store::redis) struct Unsettled {
    pub(in crate::store::redis) job: Box<Job>,
    pub(in crate::store::redis) settler: Settler,
    /// Why not.
    pub(in crate::store::redis) error: Error,
    /// The server's refusal, if it was sent.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "one server redirects nothing"))]
    pub(in crate::store::redis) cause: Option<RedisError>,
}

impl Job {
    #[inline]
    pub(in crate::store::redis) fn new(request: Request, timeout: Timeout, slot: u16) -> Box<Self> {
        Box::new(Self::of(Asked::Script(request), timeout, slot))
    }

    pub(in crate::store::redis) fn command(command: Cmd, timeout: Timeout, slot: u16) -> Box<Self> {
        Box::new(Self { is_alone: true, ..Self::of(Asked::Command(Arc::new(command)), timeout, slot) })
    }

    #[inline]
    fn of(asked: Asked, timeout: Timeout, slot: u16) -> Self {
        let (way, is_alone, tries, hops, permit) = (Way::Plain, false, 0, 0, None);
        Self { asked, timeout, slot, way, is_alone, tries, hops, permit }
    }

    pub(super) fn size(&self) -> usize {
        match &self.asked {
            Asked::Script(request) => request.size(),
            Asked::Command(_) => 1,
        }
    }

    /// Returns the part of a call; `None` of a command of its own.
    pub(super) fn request(&self) -> Option<&Request> {
        match &self.asked {
            Asked::Script(request) => Some(request),
            Asked::Command(_) => None,
        }
    }
}

/// The error of all that wait when their runtime ends.
#[cold]
pub(in crate::store::redis) fn stopped() -> Error {
    Error::new(Kind::Store, "the call to Redis was stopped: its runtime has ended")
}

/// The limit of a timeout: longer than any useful one, and short enough to be added to a time.
const FOREVER: Duration = Duration::from_secs(86_400 * 365);

/// How long a settlement may wait to be sent.
const SETTLEMENT_WAIT: Duration = Duration::from_secs(10);

/// A timeout that runs, perhaps cut short by a deadline.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::redis) struct Timeout {
    /// When the wait began.
    pub(in crate::store::redis) began: Instant,
    /// The whole timeout, at most one year. It also is how long a server may be silent.
    pub(in crate::store::redis) budget: Duration,
    /// When the reply is not needed any more: at the end of the timeout; earlier by a deadline; later for a settlement.
    pub(in crate::store::redis) until: Instant,
}

impl Timeout {
    pub(in crate::store::redis) fn new(budget: Duration) -> Self {
        Self::by(budget, Deadline::none())
    }

    /// A timeout from now on, usable up to `deadline` only. A deadline in the
    /// past ends the wait at once.
    pub(in crate::store::redis) fn by(budget: Duration, deadline: Deadline) -> Self {
        let (began, budget) = (Instant::now(), budget.min(FOREVER));
        let ends = began + budget;
        Self { began, budget, until: deadline.instant().map_or(ends, |at| at.min(ends)) }
    }

    /// The timeout of a settlement: 10 s, or the timeout if that is longer.
    pub(in crate::store::redis) fn of_settlement(budget: Duration) -> Self {
        let timeout = Self::new(budget);
        Self { until: timeout.began + timeout.budget.max(SETTLEMENT_WAIT), ..timeout }
    }

    pub(super) fn ends(self) -> Instant {
        self.began + self.budget
    }

    /// Returns the error of a caller that waited for so long.
    pub(in crate::store::redis) fn error(self) -> Error {
        let mut time = self.until.saturating_duration_since(self.began);
        if self.until < self.ends() {
            // A deadline, rounded up to the milliseconds that timers count in.
            time = Duration::from_millis(u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX));
        }
        Error::new(Kind::Timeout, format!("Redis did not reply within {time:?}"))
    }
}

/// The pause before a settlement that was not done is sent again, which doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Who is told of calls. Nothing here may block.
pub(in crate::store::redis) trait Watch: Send + Sync {
    /// Reports the outcome of what a permit was acquired for: `failure` is `None` if the server replied.
    fn report(&self, permit: Permit, failure: Option<&Failure>) {
        let _ = (permit, failure);
    }

    /// Returns whether the server is one of a Cluster, and may redirect calls.
    fn may_redirect(&self) -> bool {
        false
    }

    /// Sends a settlement again, to whichever server has its slot by now. Returns it if there is none.
    fn settle_again(&self, settlement: Unsettled) -> Option<Unsettled>;
}

pub(super) type SharedWatch = Arc<dyn Watch>;

/// Sends settlements again after a pause, or at once if the runtime ends before.
pub(super) fn settle_later(watch: &Arc<dyn Watch>, runtime: &Handle, unsettled: Vec<Unsettled>) {
    let hops = unsettled.iter().map(|unsettled| unsettled.job.hops).min().unwrap_or_default();
    let pause = PAUSE.saturating_mul(1 << hops.min(10)).min(LONGEST_PAUSE);
    let later = Later { unsettled, watch: Arc::clone(watch) };
    runtime.spawn(async move {
        sleep(pause).await;
        drop(later);
    });
}

/// Sends settlements again, but for those whose time is over.
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

/// Settlements that are sent again when this is dropped.
struct Later {
    unsettled: Vec<Unsettled>,
    watch: Arc<dyn Watch>,
}

impl Drop for Later {
    fn drop(&mut self) {
        settle_again(&*self.watch, std::mem::take(&mut self.unsettled));
    }
}
