//! Slots, one by one: a list of slots with an expiry each counts the same as the cohorts.

use std::time::Duration;

use proptest::prelude::*;

use crate::core::algorithm::{Adjusted, Adjustment, State, Step};
use crate::core::{Change, Quota};

/// Ticks of a life, and of the part of it that one cohort takes slots for.
const LIFE: u64 = 8_000_000;
const PART: u64 = LIFE / 8;

/// How long a cohort counts.
const LONGEST: u64 = LIFE + PART;

fn quota(limit: u64) -> Quota {
    Quota::concurrency(limit).slot_ttl(Duration::from_micros(LIFE))
}

/// A counter with a clock.
struct SlotCounter {
    quota: Quota,
    state: Option<State>,
    now: u64,
}

impl SlotCounter {
    fn new(limit: u64) -> Self {
        Self { quota: quota(limit), state: None, now: 100 * LIFE }
    }

    fn look(&self) -> Step {
        self.quota.decide(self.state.as_ref(), self.now, 0, 0)
    }

    /// Takes slots; returns their stamp, if they fit.
    fn take(&mut self, units: u64) -> Option<u64> {
        let step = self.quota.decide(self.state.as_ref(), self.now, units, 0);
        if step.fits && units > 0 {
            self.state = step.state;
        }
        step.fits.then_some(step.stamp)
    }

    /// Makes a change to the slots of a stamp; returns to how many it came.
    fn change(&mut self, change: Change, stamp: u64) -> u64 {
        let change = Adjustment::new(change, stamp);
        let Adjusted { units, state } = self.quota.adjust(self.state.as_ref(), self.now, change);
        self.state = state.map(|(state, _)| state).or(self.state.take());
        units
    }

    fn cohorts(&self) -> &[(u64, u32)] {
        match &self.state {
            Some(State::Slots { cohorts }) => cohorts,
            _ => &[],
        }
    }
}

/// A slot: the stamp of its cohort, and when it was taken or renewed.
#[derive(Clone, Copy, Debug)]
struct Slot {
    stamp: u64,
    since: u64,
}

/// What happens next; numbers are cut to what there is.
#[derive(Clone, Debug)]
enum SlotEvent {
    Pause(u64),
    Take(u64),
    Release(usize),
    Renew(usize),
}

fn any_event() -> impl Strategy<Value = SlotEvent> {
    prop_oneof![
        prop_oneof![0..2 * PART, 0..2 * LIFE, Just(PART), Just(LONGEST)].prop_map(SlotEvent::Pause),
        (0..4_u64).prop_map(SlotEvent::Take),
        any::<usize>().prop_map(SlotEvent::Release),
        any::<usize>().prop_map(SlotEvent::Renew),
    ]
}

/// Slots of processes that keep what they have taken, the expired ones too.
fn follow(counter: &mut SlotCounter, slots: &mut Vec<Slot>, event: &SlotEvent) {
    let now = counter.now;
    let is_live = |slot: &Slot| slot.stamp + LONGEST > now;
    match event {
        SlotEvent::Pause(ticks) => counter.now += ticks,
        SlotEvent::Take(units) => {
            let live = slots.iter().filter(|slot| is_live(slot)).count() as u64;
            let stamp = counter.take(*units);
            assert_eq!(stamp.is_some(), *units == 0 || live + units <= counter.quota.limit());
            slots.extend(stamp.into_iter().flat_map(|stamp| vec![Slot { stamp, since: now }; to_index(*units)]));
        }
        SlotEvent::Release(place) | SlotEvent::Renew(place) if !slots.is_empty() => {
            let slot = slots.swap_remove(place % slots.len());
            let units = u64::from(is_live(&slot));
            if matches!(event, SlotEvent::Release(_)) {
                assert_eq!(counter.change(Change::Refund(1), slot.stamp), units, "{slot:?}");
            } else {
                assert_eq!(counter.change(Change::Renew(1), slot.stamp), units, "{slot:?}");
                slots.push(Slot { stamp: counter.look().stamp, since: now });
            }
        }
        SlotEvent::Release(_) | SlotEvent::Renew(_) => {}
    }
}

fn to_index(units: u64) -> usize {
    usize::try_from(units).expect("few")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cohorts_count_as_a_list_of_slots_does(events in prop::collection::vec(any_event(), 1..60)) {
        let (mut counter, mut slots) = (SlotCounter::new(5), Vec::new());
        for event in &events {
            follow(&mut counter, &mut slots, event);
            let now = counter.now;
            let live: Vec<_> = slots.iter().filter(|slot| slot.stamp + LONGEST > now).collect();
            prop_assert_eq!(counter.look().remaining, 5_u64.saturating_sub(live.len() as u64));
            let reset = live.iter().map(|slot| slot.stamp + LONGEST - now).max();
            prop_assert_eq!(counter.look().reset, reset.unwrap_or(0));
            for slot in &slots {
                prop_assert!(slot.stamp <= slot.since && slot.since < slot.stamp + PART, "{slot:?}");
            }
            let cohorts = counter.cohorts();
            prop_assert!(cohorts.len() <= 10 && cohorts.windows(2).all(|two| two[0].0 + PART <= two[1].0));
        }
    }
}
