//! Models of calls that several threads see at once, explored in every order by `loom`.

use std::num::NonZeroU64;
use std::sync::Arc;

use loom::model::Builder;
use loom::thread;

use super::CallId;
use counted::CountedCalls;

#[allow(clippy::duplicate_mod, reason = "it is compiled once more with other atomics")]
#[path = "counted.rs"]
mod counted;

/// The atomics that [`counted`] uses here.
mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
}

fn calls(later: [usize; 3]) -> [CallId; 3] {
    let number = |later| NonZeroU64::MIN.saturating_add(u64::try_from(later).expect("they are few"));
    later.map(|later| CallId(number(later)))
}

/// Reports calls on several threads at once; returns those that counted as first, of all threads together.
fn counted(reports: [[CallId; 3]; 3]) -> Vec<CallId> {
    let counted_calls = Arc::new(CountedCalls::new());
    let report = |calls: [CallId; 3]| {
        let counted_calls = Arc::clone(&counted_calls);
        thread::spawn(move || calls.into_iter().filter(|call| counted_calls.is_first(Some(*call))).collect::<Vec<_>>())
    };
    reports.map(report).into_iter().flat_map(|thread| thread.join().expect("no report panics")).collect()
}

fn times(call: CallId, counted: &[CallId]) -> usize {
    counted.iter().filter(|other| **other == call).count()
}

/// Explores a model in all orders of at most two preemptions.
fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

#[test]
fn each_call_counts_exactly_once_if_fewer_later_ones_raced_than_there_are_places() {
    explore(|| {
        let [first, second, last] = calls([0, CountedCalls::PLACES / 2, CountedCalls::PLACES - 1]);
        let counted = counted([[first, second, last], [last, second, first], [second, first, last]]);
        for call in [first, second, last] {
            assert_eq!(times(call, &counted), 1, "{call:?} of {counted:?}");
        }
    });
}

#[test]
fn each_call_counts_at_most_once_and_the_last_one_does_whatever_raced() {
    explore(|| {
        let [first, second, last] = calls([0, CountedCalls::PLACES, 2 * CountedCalls::PLACES]);
        let counted = counted([[first, second, last], [last, second, first], [second, last, first]]);
        assert!([first, second].iter().all(|call| times(*call, &counted) <= 1), "{counted:?}");
        assert_eq!(times(last, &counted), 1, "{counted:?}");
    });
}
