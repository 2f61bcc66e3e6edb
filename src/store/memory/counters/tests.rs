use super::*;
use crate::core::Key;
use crate::store::Counter;
use crate::store::map::Fingerprints;

#[test]
fn a_counter_takes_half_a_line_of_a_cache() {
    assert_eq!((size_of::<PackedCounter>(), align_of::<PackedCounter>()), (32, 32));
}

const HOURLY: Quota = Quota::per_hour(1);
const STATE: State = State::Level { time: 1, amount: 2 };

#[test]
fn a_counter_is_of_its_fingerprint_whatever_its_rank() {
    let longest = (1 << 53) - (1 << STEP_BITS);
    for key in 0..200_u32 {
        let counter = Counter::new("p".try_into().expect("a valid name"), Key::new("k", key.to_string()), HOURLY);
        let of = Fingerprints::new().of(&counter);
        let mut packed = PackedCounter::new(of, STATE, Rank::new(&HOURLY, 0, u64::MAX, false));
        for refusals in 0..200 {
            assert!(packed.is_of(of), "after {refusals} refusals");
            assert_eq!((packed.rank().class(), packed.rank().idle_at()), (if refusals > 0 { 2 } else { 0 }, longest));
            packed.refused();
        }
        packed.set(STATE, Rank::new(&HOURLY, 5_000, 0, true), 5_000);
        assert!(packed.is_of(of) && packed.rank().idle_at() == 1 << STEP_BITS);
        assert!((44..64).all(|bit| !packed.is_of(Fingerprint { tail: of.tail ^ 1 << bit, ..of })));
        assert!(!packed.is_of(Fingerprint { hash: of.hash ^ 1, ..of }));
    }
}

const STATES: [State; 7] = [
    State::Level { time: 0, amount: 0 },
    State::Level { time: (1 << 52) - 1, amount: (1 << 52) - 1 },
    State::Wide { time: (1 << 52) - 1, units: (1 << 42) - 1, parts: (1 << 41) - 1 },
    State::Window { time: 0, count: 0, previous: 0 },
    State::Window { time: (1 << 52) - 1, count: (1 << 32) - 1, previous: (1 << 32) - 1 },
    State::Window { time: 1, count: 1 << 32, previous: 0 },
    State::Window { time: 1, count: 0, previous: (1 << 48) - 1 },
];

#[test]
fn what_is_kept_is_what_was_given() {
    let log = State::Log { time: 7, units: [1, 2, 3].into() };
    let slots = State::Slots { cohorts: [(7, 1), (9, 2)].into() };
    for state in STATES.into_iter().chain([log, slots]) {
        assert_eq!(*Kept::new(state.clone()).state(), state);
        for before in STATES {
            let mut kept = Kept::new(before);
            kept.set(state.clone());
            assert_eq!(*kept.state(), state);
        }
    }
}
