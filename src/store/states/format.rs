//! States of counters as bytes, for databases.
//!
//! | bytes | content |
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
//! Times are ticks of the quota since the Unix epoch. A state of another version or of another quota is an error of the
//! requests over it: a new state would allow what was already used.

use crate::core::algorithm::{CounterState, EXACT};
use crate::core::{Error, error};

const VERSION: u8 = 1;

const COHORT: usize = 12;

pub(super) fn encode(state: &CounterState) -> Vec<u8> {
    let (shape, numbers): (u8, &[u64]) = match state {
        CounterState::Level { time, amount } => (b'l', &[*time, *amount]),
        CounterState::Wide { time, units, parts } => (b'x', &[*time, *units, *parts]),
        CounterState::Window { time, count, previous } => (b'w', &[*time, *count, *previous]),
        CounterState::Log { time, .. } => (b'g', &[*time]),
        #[cfg(feature = "redis")]
        CounterState::LogDigest { .. } => unreachable!("only Redis has digests of logs"),
        CounterState::Slots { .. } => (b's', &[]),
        CounterState::Ban { ends, length, start, strikes } => (b'b', &[*ends, *length, *start, *strikes]),
    };
    let mut bytes = vec![VERSION, shape];
    bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    if let CounterState::Log { units, .. } = state {
        bytes.extend(units.iter().flat_map(|unit| unit.to_be_bytes()));
    }
    if let CounterState::Slots { cohorts } = state {
        for (first, count) in cohorts {
            bytes.extend(first.to_be_bytes());
            bytes.extend(count.to_be_bytes());
        }
    }
    bytes
}

pub(super) fn decode(bytes: &[u8]) -> Result<CounterState, Error> {
    let foreign = |text: String| Error::new(error::Kind::Store, text);
    let (&[version, shape], rest) = bytes.split_first_chunk().ok_or_else(|| foreign("a state is cut".to_owned()))?;
    if version != VERSION {
        return Err(foreign(format!("a state is of version {version} of its format, and this crate reads {VERSION}")));
    }
    let state = match shape {
        b'l' => numbers(rest).map(|[time, amount]| CounterState::Level { time, amount }),
        b'x' => numbers(rest).map(|[time, units, parts]| CounterState::Wide { time, units, parts }),
        b'w' => numbers(rest).map(|[time, count, previous]| CounterState::Window { time, count, previous }),
        b'g' => units_of_log(rest),
        b's' => slots(rest),
        b'b' => numbers(rest).map(|[ends, length, start, strikes]| CounterState::Ban { ends, length, start, strikes }),
        _ => None,
    };
    state.ok_or_else(no_state)
}

pub(super) fn no_state() -> Error {
    Error::new(error::Kind::Store, "a value is no state of this crate")
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let numbers: [[u8; 8]; N] = chunks.try_into().ok()?;
    let numbers = numbers.map(u64::from_be_bytes);
    (rest.is_empty() && numbers.iter().all(|number| *number < EXACT)).then_some(numbers)
}

fn units_of_log(bytes: &[u8]) -> Option<CounterState> {
    let (time, units) = bytes.split_first_chunk::<8>()?;
    let [time] = numbers(time)?;
    let (units, rest) = units.as_chunks::<4>();
    rest.is_empty()
        .then(|| CounterState::Log { time, units: units.iter().map(|unit| u32::from_be_bytes(*unit)).collect() })
}

fn slots(bytes: &[u8]) -> Option<CounterState> {
    let (chunks, rest) = bytes.as_chunks::<COHORT>();
    let cohort = |chunk: &[u8; COHORT]| {
        let (first, count) = chunk.split_first_chunk::<8>()?;
        let [first] = numbers(first)?;
        Some((first, u32::from_be_bytes(count.try_into().ok()?)))
    };
    let cohorts: Option<Box<[_]>> = chunks.iter().map(cohort).collect();
    CounterState::slots(cohorts.filter(|_| rest.is_empty())?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_state() -> impl Strategy<Value = CounterState> {
        prop_oneof![
            (0..EXACT, 0..EXACT).prop_map(|(time, amount)| CounterState::Level { time, amount }),
            (0..EXACT, 0..EXACT, 0..EXACT).prop_map(|(time, units, parts)| CounterState::Wide { time, units, parts }),
            (0..EXACT, 0..EXACT, 0..EXACT).prop_map(|(time, count, previous)| CounterState::Window {
                time,
                count,
                previous
            }),
            (0..EXACT, proptest::collection::vec(any::<u32>(), 0..40))
                .prop_map(|(time, units)| CounterState::Log { time, units: units.into() }),
            proptest::collection::btree_map(0..EXACT, any::<u32>(), 1..20)
                .prop_map(|cohorts| CounterState::Slots { cohorts: cohorts.into_iter().collect() }),
            (0..EXACT, 0..EXACT, 0..EXACT, 0..EXACT).prop_map(|(ends, length, start, strikes)| CounterState::Ban {
                ends,
                length,
                start,
                strikes
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_state_is_read_as_it_was_written_and_is_an_error_if_it_is_cut_or_longer(
            state in any_state(),
            byte in any::<u8>(),
        ) {
            let bytes = encode(&state);
            prop_assert_eq!(decode(&bytes).expect("a state"), state);
            prop_assert!([0, 1, bytes.len() - 1].iter().all(|len| decode(&bytes[..*len]).is_err()));
            prop_assert!(decode(&[&bytes[..], &[byte]].concat()).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            for kind in *b"lxgsb" {
                let _ = decode(&[&[VERSION, kind], &bytes[..]].concat());
            }
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
        let level = encode(&CounterState::Level { time: 1, amount: 258 });
        assert_eq!(level, [&[1, b'l'][..], &[0, 0, 0, 0, 0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 1, 2]].concat());
        let wide = encode(&CounterState::Wide { time: 1, units: 258, parts: 2 });
        assert_eq!(wide, [&[1, b'x'], &level[2..], &[0, 0, 0, 0, 0, 0, 0, 2]].concat());
        let log = encode(&CounterState::Log { time: 3, units: [7, 8].into() });
        assert_eq!(log, [&[1, b'g'][..], &[0, 0, 0, 0, 0, 0, 0, 3], &[0, 0, 0, 7], &[0, 0, 0, 8]].concat());
        let slots = encode(&CounterState::Slots { cohorts: [(3, 7)].into() });
        assert_eq!(slots, [&[1, b's'][..], &[0, 0, 0, 0, 0, 0, 0, 3], &[0, 0, 0, 7]].concat());
        assert!(decode(&[1, b's']).is_err(), "there is no state without slots");
        let twice = [&slots[..], &slots[2..]].concat();
        assert!(decode(&twice).is_err(), "no two cohorts have one time");
    }
}
