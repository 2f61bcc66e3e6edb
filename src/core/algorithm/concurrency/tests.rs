//! Slots, one by one: a list of slots with an expiry each counts the same as the cohorts.

use std::time::Duration;

use proptest::prelude::*;

use crate::core::algorithm::{Adjusted, Adjustment, CounterState, Step};
use crate::core::{Change, Quota};

/// Ticks of a life, and of the part of it that one cohort takes slots for.
const LIFE: u64 = 8_000_000;
const PART: u64 = LIFE / 8;

/// How long a cohort counts.
const MAX_LIFE: u64 = LIFE + PART;

const QUOTA: Quota = Quota::concurrency(5).slot_ttl(Duration::from_micros(LIFE));

/// What happens next; places are cut to what there is.
#[derive(Clone, Debug)]
enum SlotEvent {
    Pause(u64),
    Take(u64),
    Change(fn(u64) -> Change, usize),
}

fn any_event() -> impl Strategy<Value = SlotEvent> {
    prop_oneof![
        prop_oneof![0..2 * PART, 0..2 * LIFE, Just(PART), Just(MAX_LIFE)].prop_map(SlotEvent::Pause),
        (0..4_u64).prop_map(SlotEvent::Take),
        any::<usize>().prop_map(|place| SlotEvent::Change(Change::Refund, place)),
        any::<usize>().prop_map(|place| SlotEvent::Change(Change::Renew, place)),
    ]
}

/// A counter, and the slots of processes that keep what they have taken, the expired ones too: the stamp of each, and
/// when it was taken or renewed.
struct SlotCounter {
    state: Option<CounterState>,
    now: u64,
    slots: Vec<(u64, u64)>,
}

impl SlotCounter {
    fn decide(&self, units: u64) -> Step {
        QUOTA.decide(self.state.as_ref(), self.now, units, 0)
    }

    fn live(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().map(|(stamp, _)| stamp + MAX_LIFE).filter(|end| *end > self.now)
    }

    fn meets(&mut self, event: &SlotEvent) {
        match event {
            SlotEvent::Pause(ticks) => self.now += ticks,
            SlotEvent::Take(units) => {
                let step = self.decide(*units);
                assert_eq!(step.fits, *units == 0 || self.live().count() as u64 + units <= QUOTA.limit());
                if step.fits && *units > 0 {
                    self.state = step.state;
                    self.slots.extend((0..*units).map(|_| (step.stamp, self.now)));
                }
            }
            SlotEvent::Change(change, place) if !self.slots.is_empty() => {
                let (stamp, _) = self.slots.swap_remove(place % self.slots.len());
                let adjusted = QUOTA.adjust(self.state.as_ref(), self.now, Adjustment::new(change(1), stamp));
                let Adjusted { units, state } = adjusted;
                assert_eq!(units, u64::from(stamp + MAX_LIFE > self.now), "a slot of {stamp}");
                self.state = state.map(|(state, _)| state).or(self.state.take());
                if matches!(change(1), Change::Renew(_)) {
                    self.slots.push((self.decide(0).stamp, self.now));
                }
            }
            SlotEvent::Change(..) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cohorts_count_as_a_list_of_slots_does(events in prop::collection::vec(any_event(), 1..60)) {
        let mut counter = SlotCounter { state: None, now: 100 * LIFE, slots: Vec::new() };
        for event in &events {
            counter.meets(event);
            let looked = counter.decide(0);
            prop_assert_eq!(looked.remaining, 5_u64.saturating_sub(counter.live().count() as u64));
            prop_assert_eq!(looked.reset, counter.live().max().map_or(0, |end| end - counter.now));
            for (stamp, since) in &counter.slots {
                prop_assert!(stamp <= since && *since < stamp + PART, "{stamp} since {since}");
            }
            if let Some(CounterState::Slots { cohorts }) = &counter.state {
                prop_assert!(cohorts.len() <= 10 && cohorts.windows(2).all(|two| two[0].0 + PART <= two[1].0));
            }
        }
    }
}
