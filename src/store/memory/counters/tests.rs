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

fn packed(rank: Rank) -> PackedCounter {
    let counter = Counter::new("p".try_into().expect("a valid name"), Key::new("k", "v"), HOURLY);
    PackedCounter::new(Fingerprints::new().of(&counter), STATE, rank)
}

fn credit(packed: &PackedCounter) -> u64 {
    packed.rank().credit() / ONE_CREDIT
}

#[test]
fn whoever_was_refused_stays_so_until_a_unit_is_left_or_it_is_idle() {
    let rank = |now_us, used_up| Rank::new(&HOURLY, now_us, 1_000, used_up);
    let mut packed = packed(rank(0, false));
    packed.refused();
    assert_eq!(packed.rank().class(), 2);
    packed.set(STATE, rank(1, true), 1);
    assert_eq!(packed.rank().class(), 2);
    packed.set(STATE, rank(2, false), 2);
    assert_eq!(packed.rank().class(), 0);
    packed.refused();
    let idle = packed.rank().idle_at();
    packed.set(STATE, rank(idle, true), idle);
    assert_eq!((packed.rank().class(), credit(&packed)), (1, 1));
}

#[test]
fn each_request_is_a_credit_up_to_127_and_nothing_else_is() {
    let rank = Rank::new(&HOURLY, 0, 1_000, false);
    let mut packed = packed(rank);
    for requests in 2..200 {
        if requests % 2 == 0 {
            packed.refused();
        } else {
            packed.set(STATE, rank, 0);
        }
        packed.set(STATE, rank.without_credit(), 0);
        assert_eq!((credit(&packed), packed.rank().idle_at()), (requests.min(127), rank.idle_at()));
    }
    packed.lose(rank.credit());
    assert_eq!((credit(&packed), packed.rank().idle_at()), (126, rank.idle_at()));
}

#[test]
fn a_counter_is_of_its_fingerprint_whatever_its_rank() {
    let counter =
        |key: u32| Counter::new("p".try_into().expect("a valid name"), Key::new("k", key.to_string()), HOURLY);
    let fingerprints = Fingerprints::new();
    for key in 0..200 {
        let of = fingerprints.of(&counter(key));
        let mut packed = PackedCounter::new(of, STATE, Rank::new(&HOURLY, 0, u64::MAX, false));
        assert!(packed.is_of(of) && packed.rank().class() == 0);
        (0..200).for_each(|_| packed.refused());
        assert!(packed.is_of(of) && packed.rank().class() == 2);
        packed.set(STATE, Rank::new(&HOURLY, 5_000, 0, false), 5_000);
        assert!(packed.is_of(of) && packed.rank().class() == 0);
        assert_eq!(packed.rank().idle_at(), 1 << STEP_BITS);
        for bit in 44..64 {
            assert!(!packed.is_of(Fingerprint { tail: of.tail ^ 1 << bit, ..of }));
        }
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

#[test]
fn a_rank_keeps_the_latest_time_apart_from_its_class() {
    let longest = (1 << 53) - (1 << STEP_BITS);
    for used_up in [false, true] {
        for (now_us, reset, idle_at) in
            [(7, 2, 1 << STEP_BITS), ((1 << STEP_BITS) - 1, 1, 2 << STEP_BITS), (7, u64::MAX, longest)]
        {
            let rank = Rank::new(&Quota::per_minute(1), now_us, reset, used_up);
            assert_eq!((rank.idle_at(), rank.class()), (idle_at, usize::from(used_up)));
        }
    }
}
