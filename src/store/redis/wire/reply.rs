//! What is answered, byte by byte as `lua/wire.lua` writes it.
//!
//! The script says what it found under each key and whether the check fits; how much remains and how
//! long to wait is worked out from that by the twins in [`algorithm`](crate::core::algorithm).

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

use super::request::Request;
use crate::core::Error;
use crate::core::algorithm::{Found, Layout, State};
use crate::core::call::CallId;
use crate::core::error::Kind;
use crate::core::quota::Quota;

/// Some states keep the low bits of a time: so many there are.
const TIME_SPAN: u64 = 1 << 44;

/// The most bytes told of a check alone: a log's digest.
const MOST_OF_ONE: usize = 24;

/// Bytes of how many units a change came to.
const UNITS: usize = 7;

/// The answer to a batch, or what is left of it.
pub(in crate::store::redis) struct Reply {
    now_us: u64,
    flags: Bytes,
    views: Bytes,
    call: Option<CallId>,
}

/// The answer to one request: bytes of its own, as it is read in another task, and maybe thread.
#[derive(Debug)]
pub(in crate::store::redis) struct Answered {
    pub(super) now_us: u64,
    flags: SmallVec<[u8; 4]>,
    views: SmallVec<[u8; MOST_OF_ONE]>,
    /// Checks and bytes read so far.
    read: (usize, usize),
    /// The call that it is of, if that answers others too.
    pub(in crate::store::redis) call: Option<CallId>,
}

impl Reply {
    /// Reads the answer to so many checks; `None` if it is no such thing.
    pub(in crate::store::redis) fn read(mut bytes: Bytes, checks: usize) -> Option<Self> {
        let now_us = bytes.try_get_uint(7).ok()?;
        let flags = (bytes.len() >= checks).then(|| bytes.split_to(checks))?;
        let call = (checks > 1).then(CallId::new);
        Some(Self { now_us, flags, views: bytes, call })
    }

    /// Takes the answer to the first request of those that are left.
    pub(in crate::store::redis) fn take(&mut self, request: &Request) -> Option<Answered> {
        let flags = SmallVec::from_slice(self.flags.get(..request.size())?);
        let size = size_of(request, &flags, &self.views)?;
        let views = SmallVec::from_slice(self.views.get(..size)?);
        self.flags.advance(flags.len());
        self.views.advance(size);
        Some(Answered { now_us: self.now_us, flags, views, read: (0, 0), call: self.call })
    }

    /// Whether it is the answer to these requests, and to no more.
    pub(in crate::store::redis) fn answers<'a>(&self, requests: impl Iterator<Item = &'a Request>) -> bool {
        let (mut flags, mut views) = (&self.flags[..], &self.views[..]);
        for request in requests {
            let Some((first, rest)) = flags.split_at_checked(request.size()) else { return false };
            let Some(view) = size_of(request, first, views).and_then(|size| views.get(size..)) else { return false };
            (flags, views) = (rest, view);
        }
        flags.is_empty() && views.is_empty()
    }

    /// Whether nothing is left.
    pub(in crate::store::redis) fn is_empty(&self) -> bool {
        self.flags.is_empty() && self.views.is_empty()
    }
}

/// What was found under one check's key.
pub(super) struct Seen {
    /// As the script decided.
    pub(super) fits: bool,
    pub(super) found: Found,
    pub(super) state: Option<State>,
}

impl Answered {
    /// Reads what was found under the next check's key; `whole`: the whole of a log is told.
    pub(super) fn next(&mut self, quota: &Quota, whole: bool) -> Option<Seen> {
        let flag = *self.flags.get(self.read.0)?;
        self.read.0 += 1;
        let found = found(flag);
        let now = quota.tick().of(self.now_us);
        let state = if found == Found::Kept { Some(self.next_state(quota.facts().layout, whole, now)?) } else { None };
        Some(Seen { fits: flag & 1 == 1, found, state })
    }

    /// Reads what the next change came to: its units, and the counter after it.
    pub(super) fn change(&mut self, quota: &Quota, whole: bool) -> Option<(u64, Seen)> {
        let mut units = 0;
        if found(*self.flags.get(self.read.0)?) == Found::Kept {
            units = self.views.get(self.read.1..)?.try_get_uint(UNITS).ok()?;
            self.read.1 += UNITS;
        }
        Some((units, self.next(quota, whole)?))
    }

    fn next_state(&mut self, layout: Layout, whole: bool, now: u64) -> Option<State> {
        let rest = &self.views[self.read.1..];
        let mut view = rest.get(..size_of_view(layout, whole, rest)?)?;
        self.read.1 += view.len();
        let mut number = |bytes: usize| view.try_get_uint(bytes).ok();
        Some(match layout {
            Layout::Count => {
                let (high, low) = (number(6)?, number(6)?);
                State::Level { time: whole_time(high >> 4, now), amount: (high & 15) << 48 | low }
            }
            // Behind them stands when the key expires.
            Layout::Falling => State::Level { time: number(7)?, amount: number(7)? },
            Layout::Counts => State::Window { time: number(7)?, count: number(6)?, previous: number(6)? },
            Layout::Log if whole => {
                let (units, time) = (number(4)?.checked_sub(6)? / 4, whole_time(number(6)?, now));
                let units: Option<Box<[u32]>> = (0..units).map(|_| view.try_get_u32().ok()).collect();
                State::Log { time, units: units? }
            }
            Layout::Log => {
                let (time, live) = (whole_time(number(6)?, now), number(6)?);
                let (newest, leaving) = (whole_time(number(6)?, now), whole_time(number(6)?, now));
                State::LogDigest { time, live, newest, leaving }
            }
        })
    }
}

fn found(flag: u8) -> Found {
    match flag >> 1 {
        0 => Found::Kept,
        1 => Found::Fresh,
        2 => Found::Ahead,
        _ => Found::Foreign,
    }
}

/// Bytes of what is told of all states of a request, which `views` begin with.
fn size_of(request: &Request, flags: &[u8], views: &[u8]) -> Option<usize> {
    let mut size = 0;
    for ((layout, view), flag) in request.views().zip(flags) {
        if found(*flag) == Found::Kept {
            size += if view.is_change { UNITS } else { 0 };
            size += size_of_view(layout, view.is_whole, views.get(size..)?)?;
        }
    }
    Some(size)
}

/// Bytes of what is told of a state, which `rest` begins with.
fn size_of_view(layout: Layout, whole: bool, rest: &[u8]) -> Option<usize> {
    Some(match layout {
        Layout::Count => 12,
        Layout::Falling => 21,
        Layout::Counts => 19,
        Layout::Log if whole => {
            let size: [u8; 4] = rest.get(..4)?.try_into().ok()?;
            usize::try_from(u32::from_be_bytes(size)).ok()?.checked_add(4)?
        }
        Layout::Log => 24,
    })
}

/// The whole time whose low bits are `low`, nearest to `now`.
fn whole_time(low: u64, now: u64) -> u64 {
    let half = TIME_SPAN / 2;
    let behind = now.wrapping_sub(low).wrapping_add(half) % TIME_SPAN;
    (now + half).saturating_sub(behind)
}

/// The error of an answer that is none to what was asked.
#[cold]
pub(in crate::store::redis) fn no_decision() -> Error {
    Error::new(Kind::Store, "Redis answered a decision with something else")
}
