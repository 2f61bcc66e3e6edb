use std::time::Duration;

use fastrand::Rng;

use super::*;
use crate::core::algorithm::NEVER;
use crate::core::{Change, Quota};

/// A time in milliseconds, at which tests begin.
const NOW: u64 = 1_700_352_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A key, and its state.
#[derive(Default)]
struct BanCounter {
    state: Option<CounterState>,
}

impl BanCounter {
    /// Strikes once; returns the length of the ban that begins.
    fn strike(&mut self, now: u64, ban: &Ban) -> Option<u64> {
        let struck = Quota::from_ban(ban).adjust(self.state.as_ref(), now, Adjustment::new(Change::Charge(1), NEVER));
        let (state, life) = struck.state?;
        assert!(life > 0 && life <= 2 * ban.most.max(ban.within), "{state:?} for {life}");
        self.state = Some(state);
        let left = self.look(now, ban).wait;
        (struck.units > 0 && left > 0).then_some(left)
    }

    fn is_banned(&self, now: u64, ban: &Ban) -> bool {
        !self.look(now, ban).fits
    }

    fn look(&self, now: u64, ban: &Ban) -> Step {
        Quota::from_ban(ban).decide(self.state.as_ref(), now, 0, 0)
    }
}

#[test]
fn bans_grow_to_the_longest_and_start_anew_after_that_time_without_one() {
    let ban = Ban::new(2, ms(60_000), ms(100)).backoff(2.0, ms(300));
    let (mut counter, mut now) = (BanCounter::default(), NOW);
    for length in [100, 200, 300, 300] {
        assert_eq!((counter.strike(now, &ban), counter.strike(now, &ban)), (None, Some(length)));
        assert!(counter.is_banned(now + length - 1, &ban) && !counter.is_banned(now + length, &ban));
        assert_eq!(counter.strike(now + length - 1, &ban), None, "no refusal during a ban counts");
        now += length;
    }
    now += 299;
    assert_eq!((counter.strike(now, &ban), counter.strike(now, &ban)), (None, Some(300)));
    now += 300 + 300;
    assert_eq!((counter.strike(now, &ban), counter.strike(now, &ban)), (None, Some(100)));
}

#[test]
fn there_is_no_ban_without_that_many_strikes_within_one_window() {
    let mut rng = Rng::with_seed(7);
    let mut bans = 0;
    for _ in 0..2_000 {
        let first = [500, 5_000][rng.usize(..2)];
        let ban = Ban::new(rng.u32(1..8), ms(1_000), ms(first)).backoff([1.0, 2.0][rng.usize(..2)], ms(8 * first));
        bans += bans_of(&mut rng, &ban);
    }
    assert!(bans > 5_000, "{bans}");
}

/// Returns how many bans began over some requests.
fn bans_of(rng: &mut Rng, ban: &Ban) -> usize {
    let (mut counter, mut now, mut bans, mut struck) = (BanCounter::default(), NOW, 0, Vec::new());
    for _ in 0..100 {
        now += [0, 1, 50, 300, 700, 1_000, 1_500, 9_000][rng.usize(..8)];
        if counter.is_banned(now, ban) {
            struck.clear();
            continue;
        }
        struck.push(now);
        if counter.strike(now, ban).is_some() {
            let recent = struck.iter().filter(|time| **time + ban.within > now).count();
            assert!(recent >= ban.after as usize, "{ban:?} at {now} after {struck:?}");
            struck.clear();
            bans += 1;
        }
        let left = counter.look(now, ban).wait;
        assert!(left <= ban.most, "{ban:?}: {left}");
    }
    bans
}
