use super::*;

#[test]
fn a_counter_takes_half_a_line_of_a_cache() {
    assert_eq!((size_of::<PackedCounter>(), align_of::<PackedCounter>()), (32, 32));
}

const STATES: [CounterState; 7] = [
    CounterState::Level { time: 0, amount: 0 },
    CounterState::Level { time: (1 << 52) - 1, amount: (1 << 52) - 1 },
    CounterState::Wide { time: (1 << 52) - 1, units: (1 << 42) - 1, parts: (1 << 41) - 1 },
    CounterState::Window { time: 0, count: 0, previous: 0 },
    CounterState::Window { time: (1 << 52) - 1, count: (1 << 32) - 1, previous: (1 << 32) - 1 },
    CounterState::Window { time: 1, count: 1 << 32, previous: 0 },
    CounterState::Window { time: 1, count: 0, previous: (1 << 48) - 1 },
];

#[test]
fn what_is_kept_is_what_was_given() {
    let log = CounterState::Log { time: 7, units: [1, 2, 3].into() };
    let slots = CounterState::Slots { cohorts: [(7, 1), (9, 2)].into() };
    for state in STATES.into_iter().chain([log, slots]) {
        assert_eq!(*Kept::new(state.clone()).state(), state);
        for before in STATES {
            let mut kept = Kept::new(before);
            kept.set(state.clone());
            assert_eq!(*kept.state(), state);
        }
    }
}
