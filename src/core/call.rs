//! Which call to a server an answer or an error came from.

mod heard;
#[cfg(test)]
mod models;

use std::num::NonZeroU64;

pub(crate) use heard::Heard;
use sync::{AtomicU64, Ordering};

/// What [`heard`] counts with; a model checker has another one.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

/// A call that several decisions shared, or a connection that several calls were lost with.
///
/// Unique in the process, and larger than that of every earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId(NonZeroU64);

impl CallId {
    pub(crate) fn new() -> Self {
        let last = next();
        Self(NonZeroU64::MIN.saturating_add(last))
    }
}

#[cfg(not(tollgate_simulation))]
fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// Each thread is a process of its own, and what happens there does not depend on other threads.
#[cfg(tollgate_simulation)]
fn next() -> u64 {
    thread_local!(static LAST: AtomicU64 = const { AtomicU64::new(0) });
    LAST.with(|last| last.fetch_add(1, Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_heard_of_for_the_first_time_once_whatever_is_heard_of_meanwhile() {
        let (heard, mut first) = (Heard::new(), 0);
        let calls: Vec<_> = (0..1_000).map(|_| CallId::new()).collect();
        for window in calls.windows(32) {
            // Those who share calls are told in any order.
            first += window.iter().rev().filter(|call| heard.is_first(Some(**call))).count();
        }
        assert_eq!(first, calls.len());
        assert!(heard.is_first(None) && heard.is_first(None));
    }

    #[test]
    fn each_call_counts_once_though_several_threads_tell_of_it() {
        let heard = Heard::new();
        let calls: Vec<_> = (0..60).map(|_| CallId::new()).collect();
        let count = || calls.iter().filter(|call| heard.is_first(Some(**call))).count();
        let counted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it counts")).sum()
        });
        assert_eq!(counted, calls.len());
    }
}
