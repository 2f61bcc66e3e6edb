//! What was answered, read byte by byte as `lua/wire.lua` writes it.

use super::event::Algorithm;
use super::wire::{Asked, Bytes, Kind, NUMBER};

/// What a script found under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Kept,
    Fresh,
    Ahead,
    Foreign,
    Outside,
}

/// The state that is told of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Units of the window that starts at a time; that of a calendar ends then.
    Fixed { start: u64, count: u64 },
    /// Units times window, at a time.
    Level { time: u64, level: u64 },
    /// Units of the aligned window of a time, and of the one before.
    Sliding { time: u64, count: u64, previous: u64 },
    /// Slots by the time that they share, oldest first.
    Slots { groups: Vec<(u64, u64)> },
    /// The time of every unit, oldest first, and the last time seen.
    Log { last: u64, units: Vec<u64> },
    /// When the last ban ends, how long it is, when the window of strikes began, and how many there are.
    Ban { ends: u64, length: u64, start: u64, strikes: u64 },
    /// How many units count, when the last was taken, and the time of the one to wait for.
    Digest { last: u64, live: u64, newest: u64, leaving: u64 },
}

/// What is answered to a check or a change.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// Whether it fits; of a change, whether it changed something.
    pub(super) fits: bool,
    pub(super) found: Found,
    /// What a change came to.
    pub(super) units: u64,
    pub(super) state: Option<State>,
}

/// Reads the time in µs and the answers.
pub(super) fn answers(reply: &[u8], asked: &[Asked]) -> Result<(u64, Vec<Answer>), String> {
    read(reply, asked).map_err(|error| format!("an answer cannot be read: {error}: {reply:?}"))
}

fn read(reply: &[u8], asked: &[Asked]) -> Result<(u64, Vec<Answer>), String> {
    let mut bytes = Bytes(reply);
    let now_us = bytes.number(NUMBER)?;
    let flags = bytes.take(asked.len())?;
    let each = asked.iter().zip(flags).map(|(asked, flags)| answer(asked, *flags, now_us, &mut bytes));
    let answers = each.collect::<Result<_, _>>()?;
    if !bytes.0.is_empty() {
        return Err(format!("{} bytes more than what is told", bytes.0.len()));
    }
    Ok((now_us, answers))
}

fn answer(asked: &Asked, flags: u8, now_us: u64, bytes: &mut Bytes<'_>) -> Result<Answer, String> {
    let found = match flags >> 1 {
        0 => Found::Kept,
        1 => Found::Fresh,
        2 => Found::Ahead,
        3 => Found::Foreign,
        4 => Found::Outside,
        _ => return Err(format!("flags {flags}")),
    };
    let mut answer = Answer { fits: flags & 1 == 1, found, units: 0, state: None };
    if found == Found::Kept {
        if matches!(asked.kind, Kind::Refund { .. } | Kind::Charge | Kind::Renew { .. } | Kind::Strike) {
            answer.units = bytes.number(NUMBER)?;
        }
        answer.state = Some(state(asked, now_us / asked.rule.tick_us, bytes)?);
    }
    Ok(answer)
}

fn state(asked: &Asked, now: u64, bytes: &mut Bytes<'_>) -> Result<State, String> {
    Ok(match asked.rule.algorithm {
        Algorithm::FixedWindow | Algorithm::Calendar => {
            let (high, low) = (bytes.number(6)?, bytes.number(6)?);
            State::Fixed { start: nearest(high >> 4, 44, now), count: (high & 15) << 48 | low }
        }
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let (time, level, _expiry) = (bytes.number(7)?, bytes.number(7)?, bytes.number(7)?);
            State::Level { time, level }
        }
        Algorithm::SlidingWindow => {
            State::Sliding { time: bytes.number(7)?, count: bytes.number(6)?, previous: bytes.number(6)? }
        }
        Algorithm::Concurrency => {
            let groups = (0..bytes.byte()?).map(|_| Ok((bytes.number(7)?, bytes.number(4)?)));
            State::Slots { groups: groups.collect::<Result<_, String>>()? }
        }
        Algorithm::Ban => {
            let mut next = || bytes.number(7);
            State::Ban { ends: next()?, length: next()?, start: next()?, strikes: next()? }
        }
        Algorithm::SlidingLog if asked.is_whole => {
            let size = usize::try_from(bytes.number(4)?).map_err(|error| error.to_string())?;
            log(bytes.take(size)?, now)?
        }
        Algorithm::SlidingLog => {
            let last = nearest(bytes.number(6)?, 44, now);
            let live = bytes.number(6)?;
            let mut time = || Ok::<_, String>(nearest(bytes.number(6)?, 44, now));
            State::Digest { last, live, newest: time()?, leaving: time()? }
        }
    })
}

fn log(bytes: &[u8], now: u64) -> Result<State, String> {
    let mut bytes = Bytes(bytes);
    let last = nearest(bytes.number(6)?, 44, now);
    let mut units = Vec::with_capacity(bytes.0.len() / 4);
    while !bytes.0.is_empty() {
        let low = bytes.number(4)?;
        units.push(last - (last.wrapping_sub(low) & 0xffff_ffff));
    }
    Ok(State::Log { last, units })
}

/// Of the times with these low bits, the one nearest to `now`.
fn nearest(low: u64, bits: u32, now: u64) -> u64 {
    let span = 1 << bits;
    let base = (now - now % span) + low % span;
    let others = [base.checked_sub(span), Some(base), base.checked_add(span)];
    others.into_iter().flatten().min_by_key(|time| time.abs_diff(now)).unwrap_or(base)
}
