//! One request as its client saw it.

use std::time::Duration;

use tokio::time::Instant;

use crate::app::{FREE, PRIORITY, USER};

/// Users who send far more than they may.
pub(crate) const FLOODING: u32 = 2;
/// Users who send far less.
const MODEST: u32 = 1_000;

/// Requests of one kind of server.
pub(crate) trait Asks: Copy + Send + 'static {
    /// Whose a request is, by its number.
    fn of(request: u32) -> Self;

    fn path(self) -> &'static str;

    /// The header that tells requests apart: its name and value.
    fn header(self) -> (&'static str, String);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Flooding(u32),
    Modest(u32),
    /// Asks for what is not limited.
    Free,
}

impl Asks for User {
    /// Two requests in five are of users who flood, one in ten is of none.
    fn of(request: u32) -> Self {
        match request {
            _ if request % 10 == 9 => Self::Free,
            _ if request % 5 < FLOODING => Self::Flooding(request % 5),
            _ => Self::Modest(fastrand::u32(..MODEST)),
        }
    }

    fn path(self) -> &'static str {
        if self == Self::Free { FREE } else { "/" }
    }

    fn header(self) -> (&'static str, String) {
        let key = match self {
            Self::Flooding(user) => format!("flooding-{user}"),
            Self::Modest(user) => format!("modest-{user}"),
            Self::Free => String::new(),
        };
        (USER, key)
    }
}

/// A request where classes matter: one in ten is for what has no layer, two are critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Free,
    Critical,
    Other,
}

impl Asks for Request {
    fn of(request: u32) -> Self {
        match request % 10 {
            9 => Self::Free,
            0 | 5 => Self::Critical,
            _ => Self::Other,
        }
    }

    fn path(self) -> &'static str {
        if self == Self::Free { FREE } else { "/" }
    }

    fn header(self) -> (&'static str, String) {
        (PRIORITY, if self == Self::Critical { "high" } else { "low" }.to_owned())
    }
}

/// Who decided a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Redis,
    /// A refusal that this process remembers.
    Memory,
    Fallback,
    /// A drop ratio.
    Ratio,
    /// Nobody told.
    Unknown,
}

/// Which shedder refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shedder {
    Fleet,
    Worker,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample<U = User> {
    pub(crate) user: U,
    /// When it was to be sent, however late that was done: so what stalls one request shows in all
    /// that were to follow.
    pub(crate) due: Instant,
    pub(crate) done: Instant,
    /// 0 if there was no answer.
    pub(crate) status: u16,
    pub(crate) by: By,
    pub(crate) shed: Option<Shedder>,
}

impl<U> Sample<U> {
    pub(crate) fn took(&self) -> Duration {
        self.done - self.due
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.status == 200
    }

    pub(crate) fn is_by(&self, by: By) -> bool {
        self.by == by
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

impl Latency {
    pub(crate) fn of<'a, U: 'a>(samples: impl IntoIterator<Item = &'a Sample<U>>) -> Self {
        let mut took: Vec<Duration> = samples.into_iter().map(Sample::took).collect();
        took.sort_unstable();
        let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
        Self { p50: at(50), p99: at(99) }
    }
}

/// How many were decided by someone, in percent.
pub(crate) fn percent<U>(samples: &[Sample<U>], by: By) -> f64 {
    100.0 * samples.iter().filter(|sample| sample.is_by(by)).count() as f64 / samples.len().max(1) as f64
}
