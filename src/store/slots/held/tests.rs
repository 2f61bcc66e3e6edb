use std::time::Duration;

use fastrand::Rng;

use super::*;
use crate::core::{Key, Quota};

const LIFE: Duration = Duration::from_secs(30);

/// Longer than a history.
const LONG: Duration = Duration::from_secs(90);

fn taken_for(life: Duration, key: &str, units: u64, stamp: u64) -> ReceiptItem {
    let quota = Quota::concurrency(1_000).slot_ttl(life).max_hold(Duration::from_secs(600));
    ReceiptItem::new(
        Counter::new("streams".try_into().expect("a valid name"), Key::new("user", key), quota),
        units,
        stamp,
    )
}

fn taken(key: &str, units: u64, stamp: u64) -> ReceiptItem {
    taken_for(LIFE, key, units, stamp)
}

/// The only change of a settlement, by the stamp of its receipt.
fn change(sent: &PendingSettlement) -> (Change, u64) {
    let (receipt, [settlement]) = sent.settlement();
    (settlement.change, receipt.items()[0].stamp)
}

fn changes(sent: &[PendingSettlement]) -> Vec<(Change, u64)> {
    sent.iter().map(change).collect()
}

/// What is sent when the slots of a hold are released.
fn released(slots: &mut HeldSlots, hold: HoldId, now: Instant) -> Vec<PendingSettlement> {
    slots.release(hold, now);
    all_next(slots, now)
}

fn all_next(slots: &mut HeldSlots, now: Instant) -> Vec<PendingSettlement> {
    std::iter::from_fn(|| slots.next(now)).collect()
}

/// What is sent at a heartbeat.
fn beat(slots: &mut HeldSlots, now: Instant) -> Vec<PendingSettlement> {
    slots.beat(now);
    all_next(slots, now)
}

const LOST: Settled = None;

fn made(units: u64, stamp: u64) -> Vec<ChangeResult> {
    vec![ChangeResult::new(units, stamp)]
}

fn unsent() -> Error {
    Error::invalid("it is not sent").unsent()
}

#[test]
fn a_release_is_sent_at_once_by_the_stamp_and_only_once() {
    let (mut slots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let hold = slots.hold(store, &taken("ada", 3, 7), now);
    let sent = released(&mut slots, hold, now);
    assert_eq!(changes(&sent), [(Change::Refund(3), 7)]);
    assert_eq!(slots.release(hold, now), 0);
    assert!(all_next(&mut slots, now).is_empty());
    slots.done(&sent[0], Some(Ok(made(3, 7))), now);
    assert!(slots.is_empty() && slots.holds.is_empty() && slots.in_flight == 0);
}

#[test]
fn slots_are_renewed_when_a_third_of_their_life_has_passed_all_of_a_stamp_as_one() {
    let (mut slots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let holds: Vec<_> = (0..100).map(|_| slots.hold(store, &taken("ada", 1, 7), now)).collect();
    assert!(beat(&mut slots, now + LIFE / 3 - Duration::from_millis(1)).is_empty());
    let due = now + LIFE / 3;
    let sent = beat(&mut slots, due);
    assert_eq!(changes(&sent), [(Change::Renew(100), 7)]);
    // They are being renewed: what is released now waits for the result, and what is taken now is another cohort.
    assert!(released(&mut slots, holds[0], due).is_empty());
    let late = slots.hold(store, &taken("ada", 5, 7), due);
    assert_eq!(slots.done(&sent[0], Some(Ok(made(98, 8))), due), 2, "the store had lost them");
    // Whose slots are released does not matter.
    assert_eq!(changes(&all_next(&mut slots, due)), [(Change::Refund(1), 7)]);
    assert_eq!(changes(&released(&mut slots, late, due)), [(Change::Refund(4), 7), (Change::Refund(1), 8)]);
    assert!(beat(&mut slots, due + LIFE / 3 - Duration::from_millis(1)).is_empty());
    assert_eq!(changes(&beat(&mut slots, due + LIFE / 3)), [(Change::Renew(99), 8)]);
}

#[test]
fn what_was_due_first_is_sent_first() {
    let (mut slots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let millis = Duration::from_millis;
    let key = |place: u64| format!("user {place}");
    // Two at each time.
    let holds = (0..200).map(|place| slots.hold(store, &taken(&key(place), 1, place), now + millis(place / 2)));
    assert_eq!(holds.count(), 200);
    let sent = beat(&mut slots, now + LIFE / 2);
    let stamps: Vec<_> = changes(&sent).into_iter().map(|(_, stamp)| stamp).collect();
    assert_eq!(stamps, (0..200).collect::<Vec<_>>());
}

#[test]
fn slots_of_a_short_life_are_renewed_while_a_third_of_it_is_left() {
    for life in [2_000, 2_500, 3_000, 4_000].map(Duration::from_millis) {
        for first in (0..20).map(|part| HEARTBEAT * part / 20) {
            let (mut slots, now) = (HeldSlots::default(), Instant::now());
            let _hold = slots.hold(StoreId::new(), &taken_for(life, "ada", 1, 7), now);
            let beats = (0..4).map(|beats| first + HEARTBEAT * beats);
            let age = beats.into_iter().find(|age| !beat(&mut slots, now + *age).is_empty()).expect("it is renewed");
            assert!(age <= 2 * life / 3, "after {age:?} of {life:?}");
        }
    }
}

#[test]
fn slots_of_one_counter_that_are_renewed_together_are_one_from_then_on() {
    let (mut slots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let _holds: Vec<_> = (1..=50).map(|stamp| slots.hold(store, &taken("ada", 1, stamp), now)).collect();
    let due = now + LIFE / 3;
    let sent = beat(&mut slots, due);
    assert_eq!(sent.len(), 50);
    for sent in &sent {
        slots.done(sent, Some(Ok(made(1, 60))), due);
    }
    assert_eq!(changes(&beat(&mut slots, due + LIFE / 3)), [(Change::Renew(50), 60)]);
}

#[test]
fn releases_beyond_what_is_in_flight_wait_and_are_merged() {
    let (mut slots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let holds: Vec<_> = (0..100_000).map(|_| slots.hold(store, &taken("ada", 1, 7), now)).collect();
    let mut sent: Vec<_> = holds.into_iter().flat_map(|hold| released(&mut slots, hold, now)).collect();
    assert_eq!(sent.len(), MAX_IN_FLIGHT);
    slots.done(&sent.pop().expect("many are in flight"), Some(Ok(made(1, 7))), now);
    let waited = all_next(&mut slots, now);
    assert_eq!(changes(&waited), [(Change::Refund(100_000 - MAX_IN_FLIGHT as u64), 7)]);
    sent.iter().chain(&waited).for_each(|sent| _ = slots.done(sent, Some(Ok(made(1, 7))), now));
    assert!(slots.is_empty() && slots.in_flight == 0);
}

#[test]
fn memory_is_given_back_with_the_next_heartbeat() {
    let (mut slots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let holds = (0..10_000).map(|number| slots.hold(store, &taken(&number.to_string(), 1, 7), now));
    let holds: Vec<_> = holds.collect();
    let mut sent: VecDeque<_> = holds.into_iter().flat_map(|hold| released(&mut slots, hold, now)).collect();
    while let Some(first) = sent.pop_front() {
        slots.done(&first, Some(Ok(made(1, 7))), now);
        sent.extend(all_next(&mut slots, now));
    }
    assert!(slots.is_empty() && slots.counters.capacity() >= 10_000);
    slots.beat(now);
    assert!(slots.counters.capacity() < 100 && slots.queue.capacity() < 100);
}

#[test]
fn what_was_certainly_not_sent_is_sent_with_the_next_heartbeat_until_the_slots_expire() {
    let (mut slots, start, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let hold = slots.hold(store, &taken("ada", 3, 7), start);
    let mut sent = released(&mut slots, hold, start);
    for number in 1..60 {
        let now = start + HEARTBEAT * number;
        let result = now - HEARTBEAT / 2;
        sent.drain(..).for_each(|sent| _ = slots.done(&sent, Some(Err(unsent())), result));
        assert!(all_next(&mut slots, result).is_empty(), "it waits for the heartbeat");
        sent = beat(&mut slots, now);
        let is_alive = result - start < LIFE + LIFE / 8 + 2 * HEARTBEAT;
        assert_eq!(changes(&sent), [(Change::Refund(3), 7)][..is_alive.into()], "heartbeat {number}");
    }
    assert!(slots.is_empty());
}

#[test]
fn a_store_that_sends_nothing_is_called_once_a_heartbeat_for_each_cohort() {
    let (mut slots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let holds: Vec<_> = (1..=9).map(|stamp| slots.hold(store, &taken("ada", 1, stamp), now)).collect();
    for hold in holds {
        slots.release(hold, now);
    }
    for number in 0..5 {
        let mut calls = 0;
        while let Some(sent) = slots.next(now + HEARTBEAT * number) {
            slots.done(&sent, Some(Err(unsent())), now + HEARTBEAT * number);
            calls += 1;
        }
        assert_eq!(calls, 9, "heartbeat {number}");
        slots.beat(now + HEARTBEAT * (number + 1));
    }
}

#[test]
fn a_renewal_is_repeated_by_the_same_stamp_until_it_is_known_to_be_made() {
    let (mut slots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let _hold = slots.hold(store, &taken("ada", 3, 7), now);
    let mut renewed = Vec::new();
    for number in 1..=30 {
        let now = now + HEARTBEAT * number;
        for sent in beat(&mut slots, now) {
            assert_eq!(change(&sent), (Change::Renew(3), 7));
            renewed.push(number);
            slots.done(&sent, if number == 10 { Some(Err(unsent())) } else { LOST }, now);
        }
    }
    assert_eq!(renewed, [10, 11, 19, 27]);
}

#[test]
fn slots_that_are_held_for_too_long_are_released_though_nobody_drops_them() {
    let (mut slots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let hold = slots.hold(store, &taken("ada", 3, 7), now);
    let end = now + Duration::from_secs(600);
    assert_eq!(slots.beat(end - HEARTBEAT), 0);
    assert_eq!(slots.beat(end), 3);
    assert_eq!(changes(&all_next(&mut slots, end))[0], (Change::Refund(3), 7));
    assert_eq!(slots.release(hold, end), 0);
}

/// A store by the rules of cohorts, whose replies may be lost.
#[derive(Default)]
struct Counted {
    time: u64,
    cohorts: BTreeMap<(String, u64), u64>,
}

impl Counted {
    fn take(&mut self, key: &str, units: u64) -> u64 {
        *self.cohorts.entry((key.into(), self.time)).or_default() += units;
        self.time
    }

    fn make(&mut self, sent: &PendingSettlement) -> ChangeResult {
        let (receipt, [settlement]) = sent.settlement();
        let taken = &receipt.items()[0];
        let (key, Change::Refund(units) | Change::Renew(units)) =
            (format!("{:?}", taken.counter.key()), settlement.change)
        else {
            panic!("slots are not charged")
        };
        let count = self.cohorts.entry((key.clone(), taken.stamp)).or_default();
        let back = units.min(*count);
        *count -= back;
        let renews = matches!(settlement.change, Change::Renew(_));
        let stamp = if renews { self.take(&key, units) } else { taken.stamp };
        ChangeResult::new(back, stamp)
    }

    fn total(&self) -> u64 {
        self.cohorts.values().sum()
    }
}

/// Two processes that share a store: what each holds, and has in flight.
struct World {
    id: StoreId,
    store: Counted,
    now: Instant,
    books: [HeldSlots; 2],
    holds: Vec<(usize, HoldId)>,
    flying: Vec<(usize, PendingSettlement)>,
    /// At each rest, what the store counts and what is held.
    seen: Vec<(u64, u64)>,
}

impl World {
    fn new() -> Self {
        let (store, books, now) = (Counted::default(), [HeldSlots::default(), HeldSlots::default()], Instant::now());
        Self { id: StoreId::new(), store, now, books, holds: Vec::new(), flying: Vec::new(), seen: Vec::new() }
    }

    fn hold(&mut self, book: usize, key: &str, units: u64) {
        let of = taken_for(LONG, key, units, 0);
        let stamp = self.store.take(&format!("{:?}", of.counter.key()), units);
        self.holds.push((book, self.books[book].hold(self.id, &of.stamp(stamp), self.now)));
    }

    fn release(&mut self, hold: usize) {
        let (book, hold) = self.holds.swap_remove(hold);
        self.books[book].release(hold, self.now);
        self.send(book);
    }

    fn send(&mut self, book: usize) {
        while let Some(sent) = self.books[book].next(self.now) {
            self.flying.push((book, sent));
        }
    }

    fn beat(&mut self, book: usize) {
        self.books[book].beat(self.now);
        self.send(book);
    }

    /// Replies to a settlement; `known` is what its process knows of it, if it was made.
    fn reply(&mut self, sent: usize, is_made: bool, known: impl FnOnce(ChangeResult) -> Settled) {
        let (book, sent) = self.flying.swap_remove(sent);
        let known = if is_made { known(self.store.make(&sent)) } else { Some(Err(unsent())) };
        self.books[book].done(&sent, known, self.now);
        self.send(book);
    }

    fn note_if_at_rest(&mut self) {
        let mut cohorts = self.books.iter().flat_map(|book| book.counters.values()).flat_map(|slots| &slots.cohorts);
        if self.flying.is_empty() && cohorts.all(|cohort| cohort.is_held) {
            let held = self.books.iter().flat_map(|book| book.holds.values()).map(|(_, units)| units).sum();
            self.seen.push((self.store.total(), held));
        }
    }

    fn step(&mut self, rng: &mut Rng, takes: bool, loses: bool) {
        let book = rng.usize(..2);
        match rng.u8(..7) {
            0 | 1 if takes => self.hold(book, ["ada", "bob"][rng.usize(..2)], rng.u64(1..5)),
            2 if !self.holds.is_empty() => self.release(rng.usize(..self.holds.len())),
            3 => {
                (self.now, self.store.time) = (self.now + HEARTBEAT, self.store.time + rng.u64(..2));
                self.beat(book);
            }
            _ if !self.flying.is_empty() => {
                let (sent, kind) = (rng.usize(..self.flying.len()), rng.u8(..4));
                let is_lost = loses && kind == 1;
                self.reply(sent, kind > 0, |applied| if is_lost { LOST } else { Some(Ok(vec![applied])) });
            }
            _ => {}
        }
        self.note_if_at_rest();
    }

    fn end(&mut self) {
        while !self.holds.is_empty() {
            self.release(0);
        }
        while !self.flying.is_empty() || !self.books.iter().all(HeldSlots::is_empty) {
            while !self.flying.is_empty() {
                self.reply(0, true, |applied| Some(Ok(vec![applied])));
            }
            self.now += HEARTBEAT;
            self.beat(0);
            self.beat(1);
        }
        self.note_if_at_rest();
    }
}

/// Takes, releases, renews and loses at random. Returns what the store counts and what is held at each rest.
fn history(seed: u64, loses: bool) -> Vec<(u64, u64)> {
    let (mut rng, mut world) = (Rng::with_seed(seed), World::new());
    for step in 0..500 {
        world.step(&mut rng, step < 300, loses);
    }
    world.end();
    world.seen
}

#[test]
fn at_each_rest_a_store_counts_what_is_held_and_nothing_at_last() {
    for seed in 0..500 {
        let seen = history(seed, false);
        assert!(seen.iter().all(|(counted, held)| counted == held), "seed {seed}: {seen:?}");
        assert_eq!(seen.last(), Some(&(0, 0)), "seed {seed}");
    }
}

#[test]
fn a_store_whose_replies_are_lost_never_counts_less_than_is_held() {
    let mut more = 0;
    for seed in 0..500 {
        let seen = history(seed, true);
        assert!(seen.iter().all(|(counted, held)| counted >= held), "seed {seed}: {seen:?}");
        more += seen.iter().filter(|(counted, held)| counted > held).count();
    }
    assert!(more > 0, "nothing was lost");
}
