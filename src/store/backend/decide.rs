//! Deciding the jobs of a transaction, one after the other, each on the states that the earlier ones leave.
//!
//! Jobs and the states that were loaded come in; what was done for each, and the states to write, go out. Nothing here
//! waits, and nothing is kept: after a conflict the jobs are decided again on other states.
//!
//! # The format of a state
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | the version of the format, 1 |
//! | 1 | the shape: `l`, `x`, `w`, `g`, `s` or `b` |
//! | then, each of 8 bytes, big-endian | |
//! | `l` | a time and an amount: a fixed window's start and count, or a bucket's last time and level |
//! | `x` | a bucket's last time, and a level of 2^52 or more: its units, and the parts beyond them |
//! | `w` | a sliding window's last time, its count, and the count of the window before |
//! | `g` | a sliding log's last time; then 4 bytes a unit, the low bits of its time, oldest first |
//! | `s` | of each cohort of slots the time of the first, then 4 bytes: how many slots; oldest first |
//! | `b` | when the last ban of a key ends, how long it is, when the window of strikes began, and how many there are: in ms |
//!
//! Times are ticks of the quota since the Unix epoch. A state of another version, or that is none of its quota, is an
//! error of the requests over it: to start anew would admit what was already used.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use super::queue::{TxJob, TxResult, Work};
use super::traits::{StateId, Write};
use crate::core::algorithm::{Adjusted, EXACT, State};
use crate::core::{Error, Quota, error};
use crate::store::bans::log;
use crate::store::clock::micros;
use crate::store::evaluate::{adjustment, applied, decided, evaluate, finish, is_kept};
use crate::store::{Change, ChangeResult, Check, ReceiptItem, StoreDecision, StoreId};

/// The result of each job, in their order.
pub(super) type Results = Vec<Result<TxResult, Error>>;

/// Decides the jobs on what was loaded for their states; returns their results, and what is to be written.
///
/// # Errors
///
/// If there is not one state for each id.
pub(super) fn decide(
    store: StoreId,
    ids: &[StateId],
    jobs: &[TxJob],
    now: Duration,
    states: &[Option<Vec<u8>>],
) -> Result<(Results, Vec<Write>), Error> {
    if states.len() != ids.len() {
        let text = format!("the database returned {} states for {} ids", states.len(), ids.len());
        return Err(Error::new(error::Kind::Store, text));
    }
    let read = |state: &Option<Vec<u8>>| (state.as_deref().map(decode).transpose(), None);
    let by_id = ids.iter().zip(states.iter().map(read)).collect();
    let mut states = States { store, now_us: micros(now), by_id };
    let results = jobs.iter().map(|job| states.work(job)).collect();
    Ok((results, states.writes()))
}

/// The states of a transaction while it is decided.
struct States<'a> {
    store: StoreId,
    /// In microseconds since the Unix epoch.
    now_us: u64,
    by_id: BTreeMap<&'a StateId, LoadedState>,
}

/// A state by now, or why it cannot be read, and how long it may matter if it has to be written.
type LoadedState = (Result<Option<State>, Error>, Option<Duration>);

impl States<'_> {
    /// Does the work of one job.
    ///
    /// # Errors
    ///
    /// If a state that it needs cannot be read; a reset needs none.
    fn work(&mut self, job: &TxJob) -> Result<TxResult, Error> {
        if let Work::Adjust(change) = &job.work
            && change.2 == Change::Reset
        {
            let (before, _) = mem::replace(self.entry(&job.ids[0]), (Ok(None), Some(Duration::ZERO)));
            let found = !matches!(before, Ok(None));
            return Ok(TxResult::ChangeResult(ChangeResult::new(found.into(), change.1.stamp)));
        }
        for (index, id) in job.ids.iter().enumerate() {
            self.check(id, job.work.quota(index))?;
        }
        Ok(match &job.work {
            Work::Decide(checks) => TxResult::StoreDecision(self.decide(checks, &job.ids)),
            Work::Adjust(change) => TxResult::ChangeResult(self.adjust(change, &job.ids[0])),
        })
    }

    /// Checks that a state is one of this quota.
    fn check(&self, id: &StateId, quota: &Quota) -> Result<(), Error> {
        match &self.by_id[id].0 {
            Ok(Some(state)) if !quota.can_read(state) => Err(no_state()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.shared()),
        }
    }

    /// Returns the states that differ from what was loaded.
    fn writes(self) -> Vec<Write> {
        let written = |(id, (state, ttl)): (&StateId, LoadedState)| {
            Some(Write { id: id.clone(), state: state.ok()?.as_ref().map(encode), ttl: ttl? })
        };
        self.by_id.into_iter().filter_map(written).collect()
    }

    fn decide(&mut self, checks: &[Check], ids: &[StateId]) -> StoreDecision {
        let state = |index: usize| self.state(&ids[index]).map(Cow::Borrowed);
        let now = |quota: &Quota| quota.tick().of(self.now_us);
        let (mut steps, refused) = evaluate(checks, state, now);
        finish(checks, &mut steps, refused, state, now);
        log(checks, &steps);
        for (index, check) in checks.iter().enumerate() {
            if is_kept(checks, &steps, index, refused)
                && let Some(state) = steps[index].state.take()
            {
                self.keep(&ids[index], check.counter.quota(), state, steps[index].reset);
            }
        }
        decided(self.store, checks, &steps, refused)
    }

    fn adjust(
        &mut self,
        (before, taken, change): &(Vec<ReceiptItem>, ReceiptItem, Change),
        id: &StateId,
    ) -> ChangeResult {
        let ReceiptItem { counter, floor, .. } = taken;
        let quota = counter.quota();
        let now = quota.tick().of(self.now_us);
        let Adjusted { units, state } = quota.adjust(self.state(id), now, adjustment(before, taken, *change));
        if let Some((state, reset)) = state {
            self.keep(id, quota, state, reset);
        }
        applied(taken, *change, units, &quota.decide(self.state(id), now, 0, *floor))
    }

    fn entry(&mut self, id: &StateId) -> &mut LoadedState {
        self.by_id.get_mut(id).expect("a transaction has all states of its jobs")
    }

    fn state(&self, id: &StateId) -> Option<&State> {
        self.by_id[id].0.as_ref().ok()?.as_ref()
    }

    /// Keeps a state. It may matter until it resets, and one more window if the clock steps back.
    fn keep(&mut self, id: &StateId, quota: &Quota, state: State, reset: u64) {
        let micros = reset.saturating_mul(quota.tick().micros());
        *self.entry(id) = (Ok(Some(state)), Some(Duration::from_micros(micros).saturating_add(quota.window())));
    }
}

/// The version of the format.
const VERSION: u8 = 1;

/// Bytes of a cohort: its time and its slots.
const COHORT: usize = 12;

/// Writes a state.
fn encode(state: &State) -> Vec<u8> {
    let (shape, numbers): (u8, &[u64]) = match state {
        State::Level { time, amount } => (b'l', &[*time, *amount]),
        State::Wide { time, units, parts } => (b'x', &[*time, *units, *parts]),
        State::Window { time, count, previous } => (b'w', &[*time, *count, *previous]),
        State::Log { time, .. } => (b'g', &[*time]),
        #[cfg(feature = "redis")]
        State::LogDigest { .. } => unreachable!("only Redis has digests of logs"),
        State::Slots { .. } => (b's', &[]),
        State::Ban { ends, length, start, strikes } => (b'b', &[*ends, *length, *start, *strikes]),
    };
    let mut bytes = vec![VERSION, shape];
    bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    if let State::Log { units, .. } = state {
        bytes.extend(units.iter().flat_map(|unit| unit.to_be_bytes()));
    }
    if let State::Slots { cohorts } = state {
        for (first, count) in cohorts {
            bytes.extend(first.to_be_bytes());
            bytes.extend(count.to_be_bytes());
        }
    }
    bytes
}

/// Reads a state.
///
/// # Errors
///
/// If the bytes are no state of this version.
fn decode(bytes: &[u8]) -> Result<State, Error> {
    let foreign = |text: String| Error::new(error::Kind::Store, text);
    let (&[version, shape], rest) = bytes.split_first_chunk().ok_or_else(|| foreign("a state is cut".to_owned()))?;
    if version != VERSION {
        return Err(foreign(format!("a state is of version {version} of its format, and this crate reads {VERSION}")));
    }
    let state = match shape {
        b'l' => numbers(rest).map(|[time, amount]| State::Level { time, amount }),
        b'x' => numbers(rest).map(|[time, units, parts]| State::Wide { time, units, parts }),
        b'w' => numbers(rest).map(|[time, count, previous]| State::Window { time, count, previous }),
        b'g' => units_of_log(rest),
        b's' => slots(rest),
        b'b' => numbers(rest).map(|[ends, length, start, strikes]| State::Ban { ends, length, start, strikes }),
        _ => None,
    };
    state.ok_or_else(no_state)
}

/// The error of a value that is not what this crate has written for its id.
fn no_state() -> Error {
    Error::new(error::Kind::Store, "a value is no state of this crate")
}

/// Reads exactly so many numbers, each of which must be one that decisions are exact for.
fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let numbers: [[u8; 8]; N] = chunks.try_into().ok()?;
    let numbers = numbers.map(u64::from_be_bytes);
    (rest.is_empty() && numbers.iter().all(|number| *number < EXACT)).then_some(numbers)
}

fn units_of_log(bytes: &[u8]) -> Option<State> {
    let (time, units) = bytes.split_first_chunk::<8>()?;
    let [time] = numbers(time)?;
    let (units, rest) = units.as_chunks::<4>();
    rest.is_empty().then(|| State::Log { time, units: units.iter().map(|unit| u32::from_be_bytes(*unit)).collect() })
}

fn slots(bytes: &[u8]) -> Option<State> {
    let (chunks, rest) = bytes.as_chunks::<COHORT>();
    let cohort = |chunk: &[u8; COHORT]| {
        let (first, count) = chunk.split_first_chunk::<8>()?;
        let [first] = numbers(first)?;
        Some((first, u32::from_be_bytes(count.try_into().ok()?)))
    };
    let cohorts: Option<Box<[_]>> = chunks.iter().map(cohort).collect();
    State::slots(cohorts.filter(|_| rest.is_empty())?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_state() -> impl Strategy<Value = State> {
        prop_oneof![
            (0..EXACT, 0..EXACT).prop_map(|(time, amount)| State::Level { time, amount }),
            (0..EXACT, 0..EXACT, 0..EXACT).prop_map(|(time, units, parts)| State::Wide { time, units, parts }),
            (0..EXACT, 0..EXACT, 0..EXACT).prop_map(|(time, count, previous)| State::Window { time, count, previous }),
            (0..EXACT, proptest::collection::vec(any::<u32>(), 0..40))
                .prop_map(|(time, units)| State::Log { time, units: units.into() }),
            proptest::collection::btree_map(0..EXACT, any::<u32>(), 1..20)
                .prop_map(|cohorts| State::Slots { cohorts: cohorts.into_iter().collect() }),
            (0..EXACT, 0..EXACT, 0..EXACT, 0..EXACT).prop_map(|(ends, length, start, strikes)| State::Ban {
                ends,
                length,
                start,
                strikes
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_state_is_read_as_it_was_written(state in any_state()) {
            prop_assert_eq!(decode(&encode(&state)).expect("a state"), state);
        }

        #[test]
        fn a_state_that_is_cut_or_longer_is_an_error(state in any_state(), byte in any::<u8>()) {
            let bytes = encode(&state);
            prop_assert!((0..2).all(|len| decode(&bytes[..len]).is_err()));
            prop_assert!(decode(&bytes[..bytes.len() - 1]).is_err());
            prop_assert!(decode(&[&bytes[..], &[byte]].concat()).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode(&bytes);
            let _ = decode(&[&[VERSION, b'l'], &bytes[..]].concat());
            let _ = decode(&[&[VERSION, b'x'], &bytes[..]].concat());
            let _ = decode(&[&[VERSION, b's'], &bytes[..]].concat());
            let _ = decode(&[&[VERSION, b'b'], &bytes[..]].concat());
        }
    }

    #[test]
    fn another_version_is_an_error_that_names_both() {
        let error = decode(&[2, b'l', 0]).expect_err("a later version");
        assert_eq!(error.to_string(), "a state is of version 2 of its format, and this crate reads 1");
        assert!(error.is_store());
    }

    #[test]
    fn the_format_is_as_documented() {
        let level = encode(&State::Level { time: 1, amount: 258 });
        assert_eq!(level, [&[1, b'l'][..], &[0, 0, 0, 0, 0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 1, 2]].concat());
        let wide = encode(&State::Wide { time: 1, units: 258, parts: 2 });
        assert_eq!(wide, [&[1, b'x'], &level[2..], &[0, 0, 0, 0, 0, 0, 0, 2]].concat());
        let log = encode(&State::Log { time: 3, units: [7, 8].into() });
        assert_eq!(log, [&[1, b'g'][..], &[0, 0, 0, 0, 0, 0, 0, 3], &[0, 0, 0, 7], &[0, 0, 0, 8]].concat());
        let slots = encode(&State::Slots { cohorts: [(3, 7)].into() });
        assert_eq!(slots, [&[1, b's'][..], &[0, 0, 0, 0, 0, 0, 0, 3], &[0, 0, 0, 7]].concat());
        assert!(decode(&[1, b's']).is_err(), "there is no state without slots");
        let twice = [&slots[..], &slots[2..]].concat();
        assert!(decode(&twice).is_err(), "no two cohorts have one time");
    }
}
