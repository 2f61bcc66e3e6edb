//! Replies of scripts, in the format of `lua/wire.lua`.
//!
//! The script returns the state that it found and whether the check fits. From these, the mirrors of the scripts in
//! [`algorithm`](crate::core::algorithm) compute how many units remain and how long to wait.
//!
//! | part of a reply | bytes |
//! | --- | --- |
//! | the time of the decisions, in µs since the Unix epoch | 7 |
//! | for each check a flag: `fits + 2 * found` | 1 |
//! | for each check whose state was found: the units of a change (7), then the state | see below |
//!
//! | layout | bytes of a state |
//! | --- | --- |
//! | `Count` | 12: time (44 bits), count (52 bits) |
//! | `Falling` | 21: time, level, expiry (7 each) |
//! | `Falling`, from 2^52 on | 29: 255 (1), time, units, expiry, parts (7 each) |
//! | `Counts` | 19: time (7), count and previous count (6 each) |
//! | `Log`, digest | 24: time, live units, newest, leaving (6 each) |
//! | `Log`, whole | size (4), then so many: time (6), units (4 each) |
//! | `Slots` | cohorts (1), then for each: time (7), slots (4) |
//! | `Ban` | 28: end, length, start of the window, strikes (7 each) |
//!
//! No length in a reply is trusted: every read is bounded by the received bytes. A reply that is too short, too long or
//! does not match the request is `None`, never a panic.
//!
//! The algorithms in Rust compute each verdict again from the state that the script found. If the two verdicts differ,
//! the result is an error and never a decision: the server's Lua calculates in another way, or the versions of the two
//! sides do not match.

use std::borrow::Cow;

use bytes::Buf;
use smallvec::SmallVec;

use super::request::{Request, returns_whole, returns_whole_after};
use crate::core::Error;
use crate::core::algorithm::{CounterState, Layout, StateStatus, Step};
use crate::core::call::CallId;
use crate::core::error::Kind;
use crate::core::quota::Quota;
use crate::store::bans::log;
use crate::store::evaluate::{Steps, applied, evaluate, finish, look_again, step};
use crate::store::{Change, ChangeResult, Check, ReceiptItem};

/// Some states keep only the low 44 bits of a time.
const TIME_SPAN: u64 = 1 << 44;

/// Inline bytes for a single check's state: the size of a large level.
const MAX_OF_ONE: usize = 29;

const UNITS: usize = 7;

/// First byte of a level of 2^52 or more. Other levels begin with a time, whose first byte is below 16.
const WIDE_MARK: u8 = 255;

const COHORT: usize = 11;

pub(in crate::store::redis) struct ScriptReply<'a> {
    now_us: u64,
    flags: &'a [u8],
    /// States, of the checks that found one.
    views: &'a [u8],
    /// `None` for a call of one check.
    call: Option<CallId>,
}

/// A request's part of a reply. It owns its bytes because another task reads it.
#[derive(Debug)]
pub(in crate::store::redis) struct ReplyPart {
    now_us: u64,
    flags: SmallVec<[u8; 4]>,
    views: SmallVec<[u8; MAX_OF_ONE]>,
    /// Number of flags and bytes of views that were read.
    read: (usize, usize),
    pub(in crate::store::redis) call: Option<CallId>,
}

impl<'a> ScriptReply<'a> {
    /// `None` if it is too short for the flags. [`take`](Self::take) and [`fits`](Self::fits) check the states.
    pub(in crate::store::redis) fn read(mut bytes: &'a [u8], checks: usize) -> Option<Self> {
        let now_us = bytes.try_get_uint(7).ok()?;
        let (flags, views) = bytes.split_at_checked(checks)?;
        let call = (checks > 1).then(CallId::new);
        Some(Self { now_us, flags, views, call })
    }

    /// Takes the next part of a reply that [`fits`](Self::fits), which must be of `request`. On `None`, nothing was
    /// taken.
    pub(in crate::store::redis) fn take(&mut self, request: &Request) -> Option<ReplyPart> {
        let flags = SmallVec::from_slice(self.flags.get(..request.size())?);
        // The last part is the rest, whose size was checked.
        let is_last = self.flags.len() == flags.len();
        let size = if is_last { self.views.len() } else { size_of(request, &flags, self.views)? };
        let views = SmallVec::from_slice(self.views.get(..size)?);
        (self.flags, self.views) = (&self.flags[flags.len()..], &self.views[size..]);
        Some(ReplyPart { now_us: self.now_us, flags, views, read: (0, 0), call: self.call })
    }

    pub(in crate::store::redis) fn fits<'b>(&self, requests: impl Iterator<Item = &'b Request>) -> bool {
        let (mut flags, mut views) = (self.flags, self.views);
        for request in requests {
            let Some((first, rest)) = flags.split_at_checked(request.size()) else { return false };
            let Some(view) = size_of(request, first, views).and_then(|size| views.get(size..)) else { return false };
            (flags, views) = (rest, view);
        }
        flags.is_empty() && views.is_empty()
    }
}

struct DecodedState {
    fits: bool,
    found: StateStatus,
    /// Set only for `StateStatus::Kept`.
    state: Option<CounterState>,
}

impl DecodedState {
    fn decided(self) -> Result<Self, Error> {
        if self.found == StateStatus::Outside { Err(outside()) } else { Ok(self) }
    }
}

impl ReplyPart {
    pub(in crate::store::redis) fn now_us(&self) -> u64 {
        self.now_us
    }

    /// `whole` is `true` if the request required the whole log.
    fn next(&mut self, quota: &Quota, whole: bool) -> Option<DecodedState> {
        let flag = *self.flags.get(self.read.0)?;
        self.read.0 += 1;
        let found = found(flag);
        let now = quota.tick().ticks_in(self.now_us);
        let state =
            if found == StateStatus::Kept { Some(self.next_state(quota.facts().layout, whole, now)?) } else { None };
        Some(DecodedState { fits: flag & 1 == 1, found, state })
    }

    fn change(&mut self, quota: &Quota, whole: bool) -> Option<(u64, DecodedState)> {
        let mut units = 0;
        if found(*self.flags.get(self.read.0)?) == StateStatus::Kept {
            units = self.views.get(self.read.1..)?.try_get_uint(UNITS).ok()?;
            self.read.1 += UNITS;
        }
        Some((units, self.next(quota, whole)?))
    }

    /// `now` is in the quota's ticks, and completes times whose high bits are not stored.
    fn next_state(&mut self, layout: Layout, whole: bool, now: u64) -> Option<CounterState> {
        let rest = &self.views[self.read.1..];
        let mut view = rest.get(..size_of_view(layout, whole, rest)?)?;
        self.read.1 += view.len();
        let mut number = |bytes: usize| view.try_get_uint(bytes).ok();
        Some(match layout {
            Layout::Count => {
                let (high, low) = (number(6)?, number(6)?);
                CounterState::Level { time: whole_time(high >> 4, now), amount: (high & 15) << 48 | low }
            }
            Layout::Falling if is_wide(rest) => {
                let (_, time, units, _) = (number(1)?, number(7)?, number(7)?, number(7)?);
                CounterState::Wide { time, units, parts: number(7)? }
            }
            // The expiry of the key follows them.
            Layout::Falling => CounterState::Level { time: number(7)?, amount: number(7)? },
            Layout::Counts => CounterState::Window { time: number(7)?, count: number(6)?, previous: number(6)? },
            Layout::Log if whole => {
                let (units, time) = (number(4)?.checked_sub(6)? / 4, whole_time(number(6)?, now));
                let units: Option<Box<[u32]>> = (0..units).map(|_| view.try_get_u32().ok()).collect();
                CounterState::Log { time, units: units? }
            }
            Layout::Log => {
                let (time, live) = (whole_time(number(6)?, now), number(6)?);
                let (newest, leaving) = (whole_time(number(6)?, now), whole_time(number(6)?, now));
                CounterState::LogDigest { time, live, newest, leaving }
            }
            Layout::Slots => {
                let size = view.try_get_u8().ok()?;
                let cohort = |_| Some((view.try_get_uint(7).ok()?, view.try_get_u32().ok()?));
                CounterState::slots((0..size).map(cohort).collect::<Option<_>>()?)?
            }
            Layout::Ban => {
                CounterState::Ban { ends: number(7)?, length: number(7)?, start: number(7)?, strikes: number(7)? }
            }
        })
    }
}

fn found(flag: u8) -> StateStatus {
    match flag >> 1 {
        0 => StateStatus::Kept,
        1 => StateStatus::Fresh,
        2 => StateStatus::Ahead,
        4 => StateStatus::Outside,
        _ => StateStatus::Foreign,
    }
}

fn size_of(request: &Request, flags: &[u8], views: &[u8]) -> Option<usize> {
    let mut size = 0;
    for ((layout, view), flag) in request.views().zip(flags) {
        if found(*flag) == StateStatus::Kept {
            size += if view.is_change { UNITS } else { 0 };
            size += size_of_view(layout, view.is_whole, views.get(size..)?)?;
        }
    }
    Some(size)
}

/// Returns the number of bytes of the first state. `rest` may be shorter.
fn size_of_view(layout: Layout, whole: bool, rest: &[u8]) -> Option<usize> {
    Some(match layout {
        Layout::Count => 12,
        Layout::Falling if rest.is_empty() => return None,
        Layout::Falling if is_wide(rest) => 29,
        Layout::Falling => 21,
        Layout::Counts => 19,
        Layout::Log if whole => {
            let size: [u8; 4] = rest.get(..4)?.try_into().ok()?;
            usize::try_from(u32::from_be_bytes(size)).ok()?.checked_add(4)?
        }
        Layout::Log => 24,
        Layout::Slots => 1 + COHORT * usize::from(*rest.first()?),
        Layout::Ban => 28,
    })
}

fn is_wide(rest: &[u8]) -> bool {
    rest.first() == Some(&WIDE_MARK)
}

/// Like `whole_time` in `lua/prelude.lua`. Exact within 2^43 ticks of `now`, and no state matters for longer.
fn whole_time(low: u64, now: u64) -> u64 {
    let half = TIME_SPAN / 2;
    let behind = now.wrapping_sub(low).wrapping_add(half) % TIME_SPAN;
    (now + half).saturating_sub(behind)
}

#[cold]
fn outside() -> Error {
    Error::new(Kind::Store, "the clock of Redis differs from that of this process by more than a window of a calendar")
}

#[cold]
pub(in crate::store::redis) fn no_decision() -> Error {
    Error::new(Kind::Store, "the reply of Redis to a decision was something else")
}

pub(in crate::store::redis) struct Verdict {
    pub(in crate::store::redis) steps: Steps,
    /// If set, no check has taken anything.
    pub(in crate::store::redis) refused: bool,
    /// In microseconds since the Unix epoch.
    now_us: u64,
    /// Kept for [`look_again`](Self::look_again).
    seen: SmallVec<[DecodedState; 1]>,
}

impl Verdict {
    pub(in crate::store::redis) fn evaluate(checks: &[Check], part: &mut ReplyPart) -> Result<Self, Error> {
        let now_us = part.now_us;
        let mut seen: SmallVec<[DecodedState; 1]> = SmallVec::new();
        for (index, check) in checks.iter().enumerate() {
            let next =
                part.next(check.counter.quota(), returns_whole(checks, index)).ok_or_else(no_decision)?.decided()?;
            seen.push(next);
        }
        let (state, now) = (state_of(&seen), |quota: &Quota| quota.tick().ticks_in(now_us));
        let mut steps = evaluate(checks, &state, now);
        if steps.iter().zip(&seen).any(|(step, seen)| step.fits != seen.fits) {
            return Err(no_decision());
        }
        let refused = finish(checks, &mut steps, state, now);
        log(checks, &steps);
        Ok(Self { steps, refused, now_us, seen })
    }

    /// Computes what remains if nothing is taken, after another part of the request was denied.
    pub(in crate::store::redis) fn look_again(&mut self, checks: &[Check]) {
        let Self { steps, now_us, seen, .. } = self;
        look_again(checks, steps, state_of(seen), |quota| quota.tick().ticks_in(*now_us));
    }
}

fn state_of<'a>(seen: &'a [DecodedState]) -> impl Fn(usize) -> Option<Cow<'a, CounterState>> {
    move |index| seen[index].state.as_ref().map(Cow::Borrowed)
}

/// Like [`Verdict::evaluate`], for one check, without allocations.
pub(in crate::store::redis) fn step_of_one(check: &Check, part: &mut ReplyPart) -> Result<Step, Error> {
    let seen = part.next(check.counter.quota(), false).ok_or_else(no_decision)?.decided()?;
    seen.found.warn(check.counter.policy());
    let step = step(check, seen.state.as_ref(), check.counter.quota().tick().ticks_in(part.now_us), check.cost);
    if step.fits == seen.fits { Ok(step) } else { Err(no_decision()) }
}

pub(in crate::store::redis) fn applied_change(
    taken: &ReceiptItem,
    change: Change,
    mut part: ReplyPart,
) -> Result<ChangeResult, Error> {
    let quota = taken.counter.quota();
    if change == Change::Reset {
        let was_there = part.next(quota, false).ok_or_else(no_decision)?.fits;
        return Ok(ChangeResult::new(was_there.into(), taken.stamp));
    }
    let (units, seen) = part.change(quota, returns_whole_after(taken)).ok_or_else(no_decision)?;
    let seen = seen.decided()?;
    let step = quota.decide(seen.state.as_ref(), quota.tick().ticks_in(part.now_us), 0, taken.floor);
    Ok(applied(taken, change, units, &step))
}
