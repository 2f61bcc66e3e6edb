//! Tests of how batches are cut into calls.

use tokio::time::Instant;

use super::super::samples::{self, timeout};
#[cfg(feature = "cluster")]
use super::Way;
use super::share;

/// The parts of jobs of these slots, some of which are to be alone: the places of each.
fn parts(jobs: &[(u16, bool)]) -> Vec<Vec<u8>> {
    let now = Instant::now();
    let job = |(place, (slot, is_alone)): (usize, &(u16, bool))| {
        let mut job = samples::settlement(*slot, 1, timeout(now, 100));
        job.is_alone = *is_alone;
        // It distinguishes them.
        job.tries = u8::try_from(place).expect("they are few");
        job
    };
    let jobs = jobs.iter().enumerate().map(job).collect();
    super::parts(jobs).map(|part| part.iter().map(|job| job.tries).collect()).collect()
}

#[test]
fn jobs_of_one_slot_are_one_call() {
    assert_eq!(parts(&[(7, false), (7, false), (7, false)]), [[0, 1, 2]]);
}

#[test]
fn jobs_of_several_slots_are_a_call_for_each_and_keep_their_order_in_it() {
    let slots = [(9, false), (2, false), (9, false), (2, false), (5, false), (9, false)];
    assert_eq!(parts(&slots), [vec![1, 3], vec![4], vec![0, 2, 5]]);
}

#[test]
fn jobs_that_are_to_be_alone_share_no_call() {
    assert_eq!(parts(&[(7, true), (7, true)]), [[0], [1]]);
    assert_eq!(parts(&[(7, true)]), [[0]]);
    assert_eq!(parts(&[(7, false), (7, true), (7, false), (7, true)]), [vec![0, 2], vec![1], vec![3]]);
}

#[test]
fn a_second_call_is_no_longer_than_makes_both_alike() {
    assert_eq!(share(0, 64), 64, "there is no other call");
    assert_eq!(share(3, 61), 32, "the other one is short");
    assert!(share(40, 24) >= 24, "the other one is longer than all that waits");
    assert!(share(1, 3) >= 3, "so few are not worth two calls");
    for (sent, waiting) in [(1, 1), (1, 1_000), (128, 1), (128, 65_536)] {
        assert!(share(sent, waiting) > 0, "{waiting} wait behind {sent}");
    }
}

#[test]
#[cfg(feature = "cluster")]
fn jobs_that_are_sent_in_different_ways_share_no_call() {
    let jobs = [Way::Asking, Way::Plain, Way::Asking].map(|way| {
        let mut job = samples::settlement(7, 1, timeout(Instant::now(), 100));
        job.way = way;
        job
    });
    let parts: Vec<Vec<Way>> = super::parts(jobs.into()).map(|part| part.iter().map(|job| job.way).collect()).collect();
    assert_eq!(parts, [vec![Way::Plain], vec![Way::Asking, Way::Asking]]);
}
