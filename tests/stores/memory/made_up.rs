//! Floods of keys that somebody makes up, to have a counter forgotten.

use std::time::Duration;

use tollgate::{MemoryStore, Quota};

use super::{MINUTE, admits, store};
use crate::support::time::at;

const CAPACITY: usize = 1_024;
/// Of a store in which prices, and the room of each class, are measured.
const FEW: usize = 256;
const HOUR: Duration = Duration::from_secs(3_600);

/// Asked twice, a key of it was refused once.
const ONE: Quota = Quota::token_bucket(1, HOUR);
const TEN: Quota = Quota::token_bucket(10, HOUR);
/// Idle before the keys of a flood are.
const SOON: Quota = Quota::token_bucket(10, Duration::from_secs(60));

/// Keys that nobody had before.
#[derive(Default)]
struct MadeUp {
    keys: usize,
    requests: usize,
}

impl MadeUp {
    /// Asks so many times for each of so many keys.
    fn ask(&mut self, store: &MemoryStore, quota: Quota, keys: usize, times: usize) {
        for _ in 0..keys {
            let key = format!("made up {}", self.keys);
            (0..times).for_each(|_| _ = admits(store, &key, quota));
            self.keys += 1;
        }
        self.requests += keys * times;
    }
}

/// Asks so many times; how many were admitted.
fn admitted(store: &MemoryStore, key: &str, quota: Quota, times: usize) -> usize {
    (0..times).filter(|_| admits(store, key, quota)).count()
}

#[test]
fn a_client_that_floods_with_made_up_keys_is_not_admitted_once_more_by_its_own() {
    for times in [1, 2, 5] {
        let (store, clock) = store(CAPACITY);
        let mut flood = MadeUp::default();
        assert!(admits(&store, "refused", ONE));
        for requests in 0..100 {
            // 10,000 keys in a second.
            clock.set(at(requests * 10_000));
            flood.ask(&store, ONE, 100, times);
            assert!(!admits(&store, "refused", ONE), "after {requests} requests and a flood of {}", flood.requests);
        }
    }
}

/// What is asked of a made-up key: its quota, how many times.
const FLOODS: [(&str, Quota, usize); 6] = [
    ("one of ten units", TEN, 1),
    ("two of ten units", TEN, 2),
    ("one of one unit", ONE, 1),
    ("refused once", ONE, 2),
    ("refused thrice", ONE, 4),
    ("all of ten units", TEN, 10),
];

/// How many requests of made-up keys come before a key is forgotten of which as many requests were
/// admitted as are given, and as many refused; at most so many.
fn price(flood: (Quota, usize), quota: Quota, times: usize, most: usize) -> Option<usize> {
    let (store, _) = store(FEW);
    // Full of others, before the key comes.
    let mut flooding = MadeUp::default();
    flooding.ask(&store, flood.0, 2 * FEW, flood.1);
    admitted(&store, "key", quota, times);
    let left = |store: &MemoryStore| store_left(store, "key", quota);
    let (before, begun) = (left(&store), flooding.requests);
    while flooding.requests - begun < most {
        flooding.ask(&store, flood.0, 4, flood.1);
        if left(&store) != before {
            return Some(flooding.requests - begun);
        }
    }
    None
}

fn store_left(store: &MemoryStore, key: &str, quota: Quota) -> u64 {
    super::decide(store, &[super::check(key, quota, 0)]).outcomes()[0].remaining()
}

#[test]
fn to_have_a_request_forgotten_takes_made_up_ones_of_a_fifth_of_the_capacity() {
    for (name, quota, times) in FLOODS {
        for (key, asked) in [(TEN, 1), (TEN, 4), (TEN, 10), (TEN, 13), (ONE, 1), (ONE, 2), (ONE, 20)] {
            let refuses = asked > usize::try_from(key.limit()).expect("it is small");
            let most = asked * 3 * FEW;
            let price = price((quota, times), key, asked, most);
            println!("{name}: a key asked {asked} times for {key} is forgotten after {price:?} requests");
            // A made-up key that has a unit left pushes out none that has not.
            let share = if refuses { 2 * FEW / 5 } else { FEW / 5 };
            assert!(
                price.is_none_or(|price| price >= asked * share),
                "{name}: {price:?} for {asked} requests of {key}"
            );
            let rank = |limit: usize, asked: usize| usize::from(asked >= limit) + usize::from(asked > limit);
            let limit = |quota: Quota| usize::try_from(quota.limit()).expect("it is small");
            assert!(price.is_none() || rank(limit(quota), times) >= rank(limit(key), asked), "{name}: {price:?}");
        }
    }
}

#[test]
fn requests_that_were_forgotten_are_paid_by_a_fifth_of_the_capacity_whatever_the_order_of_a_flood() {
    // A flood may first fill the store with keys that stay, so that what comes then is pushed out soon.
    for (kept, times) in [(ONE, 8), (TEN, 8), (TEN, 20)] {
        for (name, quota, few) in FLOODS {
            let (store, _) = store(FEW);
            let (mut flood, mut own, mut forgotten) = (MadeUp::default(), 0, 0);
            for _ in 0..3 {
                flood.ask(&store, kept, FEW, times);
                for _ in 0..24 {
                    if store_left(&store, "key", TEN) == 10 {
                        forgotten += std::mem::take(&mut own);
                    }
                    // One is left, so that it ranks with those that have nothing to fear.
                    own += admitted(&store, "key", TEN, 9 - own);
                    flood.ask(&store, quota, 12, few);
                }
            }
            let price = flood.requests / forgotten.max(1);
            println!("{name} after keys asked {times} times: {forgotten} forgotten, {price} requests each");
            assert!(price >= FEW / 5, "{name}: {forgotten} forgotten by {} requests", flood.requests);
        }
    }
}

#[test]
fn each_class_of_keys_has_room_from_which_no_flood_of_the_others_pushes_it_out() {
    for capacity in [64, FEW, 2_000] {
        // Units left, all used up, and refused: what is asked of a key in each class, and how much room is its own.
        let classes = [(3, capacity / 4), (10, capacity / 4), (11, capacity / 2)];
        for (class, (times, room)) in classes.into_iter().enumerate() {
            let (store, _) = store(capacity);
            // What stays after an eviction is a little less than all.
            let honest = || (0..room * 9 / 10).map(|number| format!("honest {number}"));
            honest().for_each(|key| _ = admitted(&store, &key, TEN, times));
            let mut flood = MadeUp::default();
            for _ in 0..2 {
                let others = classes.iter().enumerate().filter(|(other, _)| *other != class);
                others.for_each(|(_, (times, _))| flood.ask(&store, TEN, 2 * capacity, *times));
            }
            let left = 10 - times.min(10) as u64;
            honest().for_each(|key| {
                assert_eq!(store_left(&store, &key, TEN), left, "class {class} of {capacity}: {key} was forgotten");
            });
        }
    }
}

#[test]
fn keys_that_are_used_outlast_made_up_ones_by_as_many_requests_as_they_had() {
    let (store, _) = store(CAPACITY);
    let honest = || (0..100).map(|number| format!("honest {number}"));
    honest().for_each(|key| assert_eq!(admitted(&store, &key, SOON, 8), 8));
    MadeUp::default().ask(&store, TEN, 6 * CAPACITY, 1);
    honest().for_each(|key| assert_eq!(admitted(&store, &key, SOON, 10), 2, "{key} was forgotten"));
}

#[test]
fn keys_that_were_refused_once_make_way_when_they_are_idle() {
    let (store, clock) = store(CAPACITY);
    let minutely = Quota::token_bucket(1, Duration::from_secs(60));
    MadeUp::default().ask(&store, minutely, CAPACITY, 100);
    clock.set(at(2 * MINUTE));
    let new = || (0..CAPACITY / 2).map(|number| format!("new {number}"));
    new().for_each(|key| assert!(admits(&store, &key, ONE)));
    new().for_each(|key| assert!(!admits(&store, &key, ONE), "{key} was forgotten"));
}
