use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;
use crate::core::{Key, Quota};

const LIFE: Duration = Duration::from_secs(30);

/// Longer than a history.
const LONG: Duration = Duration::from_secs(90);

fn taken_for(life: Duration, key: &str, units: u64, stamp: u64) -> Taken {
    let quota = Quota::concurrency(1_000).slot_life(life).hold_at_most(Duration::from_secs(600));
    Taken::new(Counter::new("streams".try_into().expect("a valid name"), Key::new("user", key), quota), units, stamp)
}

fn taken(key: &str, units: u64, stamp: u64) -> Taken {
    taken_for(LIFE, key, units, stamp)
}

/// The only change of a settlement, by the stamp of its receipt.
fn change(sent: &PendingSettlement) -> (Change, u64) {
    let (receipt, [settlement]) = sent.settlement();
    (settlement.change, receipt.taken()[0].stamp)
}

fn changes(sent: &[PendingSettlement]) -> Vec<(Change, u64)> {
    sent.iter().map(change).collect()
}

/// What is sent at once when a ticket is released.
fn released(lots: &mut HeldSlots, ticket: HoldId) -> SmallVec<[PendingSettlement; 1]> {
    lots.release(ticket).0
}

fn all_next(lots: &mut HeldSlots, now: Instant) -> Vec<PendingSettlement> {
    std::iter::from_fn(|| lots.next(now)).collect()
}

fn made(units: u64, stamp: u64) -> SendResult {
    SendResult::Made(Some(Applied::new(units, stamp)))
}

#[test]
fn a_release_is_sent_at_once_by_the_stamp_and_only_once() {
    let (mut lots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let ticket = lots.hold(store, &taken("ada", 3, 7), now);
    let sent = released(&mut lots, ticket);
    assert_eq!(changes(&sent), [(Change::Refund(3), 7)]);
    assert!(released(&mut lots, ticket).is_empty());
    for sent in sent {
        lots.done(sent, &made(3, 7), now);
    }
    assert!(!lots.is_needed() && lots.held() == 0);
}

#[test]
fn slots_are_renewed_when_a_third_of_their_life_has_passed_all_of_a_stamp_as_one() {
    let (mut lots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let tickets: Vec<_> = (0..100).map(|_| lots.hold(store, &taken("ada", 1, 7), now)).collect();
    lots.beat(now + LIFE / 3 - Duration::from_millis(1));
    assert!(all_next(&mut lots, now + LIFE / 3 - Duration::from_millis(1)).is_empty());
    let due = now + LIFE / 3;
    lots.beat(due);
    let sent = all_next(&mut lots, due);
    assert_eq!(changes(&sent), [(Change::Renew(100), 7)]);
    // They are being renewed: what is released now is sent by the new stamp, and what is taken now is another lot.
    assert!(released(&mut lots, tickets[0]).is_empty());
    let late = lots.hold(store, &taken("ada", 5, 7), due);
    for sent in sent {
        assert_eq!(lots.done(sent, &made(98, 8), due), 2, "the store had lost them");
    }
    assert_eq!(changes(&all_next(&mut lots, due)), [(Change::Refund(1), 8)]);
    assert_eq!(changes(&released(&mut lots, late)), [(Change::Refund(5), 8)], "the oldest are released first");
}

#[test]
fn releases_beyond_what_is_in_flight_wait_and_are_merged() {
    let (mut lots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let tickets: Vec<_> = (0..100_000).map(|_| lots.hold(store, &taken("ada", 1, 7), now)).collect();
    let mut sent: Vec<PendingSettlement> = tickets.into_iter().flat_map(|ticket| released(&mut lots, ticket)).collect();
    assert_eq!(sent.len(), MOST_IN_FLIGHT);
    lots.done(sent.pop().expect("many are in flight"), &made(1, 7), now);
    let waited = all_next(&mut lots, now);
    assert_eq!(changes(&waited), [(Change::Refund(100_000 - MOST_IN_FLIGHT as u64), 7)]);
    sent.into_iter().chain(waited).for_each(|sent| {
        lots.done(sent, &made(1, 7), now);
    });
    assert!(!lots.is_needed());
    lots.beat(now);
    assert!(lots.counters.capacity() < 100 && lots.queue.capacity() < 100);
}

#[test]
fn what_was_certainly_not_sent_is_sent_with_the_next_beat_until_the_slots_expire() {
    let (mut lots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let ticket = lots.hold(store, &taken("ada", 3, 7), now);
    let mut sent = released(&mut lots, ticket).to_vec();
    for beat in 1..60 {
        let now = now + HEARTBEAT * beat;
        sent.drain(..).for_each(|sent| {
            lots.done(sent, &SendResult::Unsent, now);
        });
        assert!(all_next(&mut lots, now).is_empty(), "it waits for the beat");
        lots.beat(now);
        sent = all_next(&mut lots, now);
        let is_alive = now.saturating_duration_since(now - HEARTBEAT * beat) <= LIFE + LIFE / 8 + 2 * HEARTBEAT;
        assert_eq!(changes(&sent), [(Change::Refund(3), 7)][..is_alive.into()], "beat {beat}");
    }
    assert!(!lots.is_needed());
}

#[test]
fn a_release_whose_result_is_lost_is_not_sent_again() {
    let (mut lots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let ticket = lots.hold(store, &taken("ada", 3, 7), now);
    for sent in released(&mut lots, ticket) {
        lots.done(sent, &SendResult::Lost, now);
    }
    lots.beat(now + HEARTBEAT);
    assert!(all_next(&mut lots, now + HEARTBEAT).is_empty() && !lots.is_needed());
}

#[test]
fn a_renewal_is_repeated_by_the_same_stamp_until_it_is_known_to_be_made() {
    let (mut lots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let _ticket = lots.hold(store, &taken("ada", 3, 7), now);
    let mut renewed = Vec::new();
    for beat in 1..=30 {
        let now = now + HEARTBEAT * beat;
        lots.beat(now);
        for sent in all_next(&mut lots, now) {
            assert_eq!(change(&sent), (Change::Renew(3), 7));
            renewed.push(beat);
            lots.done(sent, &if beat == 10 { SendResult::Unsent } else { SendResult::Lost }, now);
        }
    }
    assert_eq!(renewed, [10, 11, 19, 27]);
}

#[test]
fn slots_that_are_held_for_too_long_are_released_though_nobody_drops_them() {
    let (mut lots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let ticket = lots.hold(store, &taken("ada", 3, 7), now);
    let end = now + Duration::from_secs(600);
    assert_eq!(lots.beat(end - HEARTBEAT), 0);
    assert_eq!(lots.beat(end), 3);
    assert_eq!(changes(&all_next(&mut lots, end)), [(Change::Refund(3), 7)]);
    assert!(released(&mut lots, ticket).is_empty() && lots.held() == 0);
}

#[test]
fn settlements_whose_results_nobody_follows_do_not_keep_others_waiting() {
    let (mut lots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let tickets: Vec<_> = (0..5_000).map(|_| lots.hold(store, &taken("ada", 1, 7), now)).collect();
    let stuck: Vec<PendingSettlement> = tickets.into_iter().flat_map(|ticket| released(&mut lots, ticket)).collect();
    lots.beat(now + HEARTBEAT);
    assert_eq!(changes(&all_next(&mut lots, now + HEARTBEAT)), [(Change::Refund(5_000 - stuck.len() as u64), 7)]);
    for sent in stuck {
        lots.done(sent, &made(1, 7), now);
    }
    assert_eq!(lots.in_flight, 1, "late results are not counted twice");
}

#[test]
fn a_renewal_whose_result_never_comes_is_repeated_and_keeps_no_release_waiting() {
    let (mut lots, now, store) = (HeldSlots::default(), Instant::now(), StoreId::new());
    let ticket = lots.hold(store, &taken("ada", 3, 7), now);
    let _other = lots.hold(store, &taken("ada", 2, 7), now);
    let mut sent = Vec::new();
    for beat in 1..=26 {
        lots.beat(now + HEARTBEAT * beat);
        sent.extend(all_next(&mut lots, now + HEARTBEAT * beat));
        if beat == 11 {
            assert!(released(&mut lots, ticket).is_empty(), "it waits for the result");
        }
    }
    assert_eq!(changes(&sent), [(Change::Renew(5), 7), (Change::Refund(3), 7), (Change::Renew(2), 7)]);
    // The result of the first one changes nothing any more.
    lots.done(sent.remove(0), &made(5, 8), now);
    lots.done(sent.pop().expect("the second renewal"), &made(0, 9), now + HEARTBEAT * 26);
    lots.beat(now + HEARTBEAT * 40);
    assert_eq!(changes(&all_next(&mut lots, now + HEARTBEAT * 40)), [(Change::Renew(2), 9)]);
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

    fn make(&mut self, sent: &PendingSettlement) -> Applied {
        let (receipt, [settlement]) = sent.settlement();
        let taken = &receipt.taken()[0];
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
        Applied::new(back, stamp)
    }

    fn total(&self) -> u64 {
        self.cohorts.values().sum()
    }
}

/// Two processes that share a store: what each holds, and has in flight.
struct World {
    store: Counted,
    now: Instant,
    books: [HeldSlots; 2],
    tickets: Vec<(usize, HoldId)>,
    flying: Vec<(usize, PendingSettlement)>,
    /// At each rest, what the store counts and what is held.
    seen: Vec<(u64, u64)>,
}

impl World {
    fn new() -> Self {
        let (store, books, now) = (Counted::default(), [HeldSlots::default(), HeldSlots::default()], Instant::now());
        Self { store, now, books, tickets: Vec::new(), flying: Vec::new(), seen: Vec::new() }
    }

    fn hold(&mut self, book: usize, key: &str, units: u64) {
        let of = taken_for(LONG, key, units, 0);
        let stamp = self.store.take(&format!("{:?}", of.counter.key()), units);
        self.tickets.push((book, self.books[book].hold(StoreId::new(), &of.stamp(stamp), self.now)));
    }

    fn release(&mut self, ticket: usize) {
        let (book, ticket) = self.tickets.swap_remove(ticket);
        self.flying.extend(released(&mut self.books[book], ticket).into_iter().map(|sent| (book, sent)));
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
    fn reply(&mut self, sent: usize, is_made: bool, known: impl FnOnce(Applied) -> SendResult) {
        let (book, sent) = self.flying.swap_remove(sent);
        let known = if is_made { known(self.store.make(&sent)) } else { SendResult::Unsent };
        self.books[book].done(sent, &known, self.now);
        self.send(book);
    }

    fn note_if_at_rest(&mut self) {
        let mut lots = self.books.iter().flat_map(|book| book.counters.values()).flat_map(|all| &all.lots);
        if self.flying.is_empty() && lots.all(|lot| lot.released == 0) {
            self.seen.push((self.store.total(), self.books.iter().map(HeldSlots::held).sum()));
        }
    }

    fn step(&mut self, rng: &mut Rng, takes: bool, loses: bool) {
        let book = rng.usize(..2);
        match rng.u8(..7) {
            0 | 1 if takes => self.hold(book, ["ada", "bob"][rng.usize(..2)], rng.u64(1..5)),
            2 if !self.tickets.is_empty() => self.release(rng.usize(..self.tickets.len())),
            3 => {
                (self.now, self.store.time) = (self.now + HEARTBEAT, self.store.time + rng.u64(..2));
                self.beat(book);
            }
            _ if !self.flying.is_empty() => {
                let (sent, kind) = (rng.usize(..self.flying.len()), rng.u8(..4));
                let is_lost = loses && kind == 1;
                self.reply(
                    sent,
                    kind > 0,
                    |applied| if is_lost { SendResult::Lost } else { SendResult::Made(Some(applied)) },
                );
            }
            _ => {}
        }
        self.note_if_at_rest();
    }

    fn end(&mut self) {
        while !self.tickets.is_empty() {
            self.release(0);
        }
        while self.books.iter().any(HeldSlots::is_needed) {
            while !self.flying.is_empty() {
                self.reply(0, true, |applied| SendResult::Made(Some(applied)));
            }
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
