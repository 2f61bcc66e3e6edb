//! Random numbers for values that need to be spread, not unpredictable: jitter, and the order of nodes.
//!
//! They are drawn from the standard library's hasher, which the operating system seeds once per thread, and are no
//! secrets: values that must not be guessed have their own keys, like the hashes of `store::map`.
//!
//! A draw advances the keys of its thread, like each new `HashMap`. Values that are made once per process must
//! therefore make no `HashMap`, because a simulated run would not repeat itself.

use std::hash::{BuildHasher, RandomState};

/// Uniform from 0 to `most` inclusive, up to 2^-64 of all draws.
pub(crate) fn up_to(most: u64) -> u64 {
    // Each state has its own key, so nothing needs to be hashed with it.
    let drawn = RandomState::new().hash_one(());
    let scaled = (u128::from(drawn) * (u128::from(most) + 1)) >> 64;
    u64::try_from(scaled).expect("less than 2^64 numbers are scaled to at most `most`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_up_to_the_most_is_drawn_about_as_often_as_another() {
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(up_to(9)).expect("small")] += 1;
        }
        // The standard deviation is 95.
        assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
        assert_eq!(up_to(0), 0);
    }

    #[test]
    fn no_two_threads_draw_alike() {
        let draw = || std::thread::spawn(|| up_to(u64::MAX)).join().expect("it does not panic");
        assert_ne!(draw(), draw());
    }
}
