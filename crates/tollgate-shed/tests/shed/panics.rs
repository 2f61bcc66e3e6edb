//! What can be wrong only in code panics where it is written, and says what its fallible version says.

use std::num::NonZeroU32;
use std::time::Duration;

use tollgate::{Ban, Key, Limiter, MemoryStore, Quota, Rule};
use tollgate_shed::{BackPressureLayer, FleetShedLayer, Ramp, WorkerShedLayer};

use crate::assert_panics;

const HOUR: Duration = Duration::from_secs(3_600);
const HOURLY: Quota = Quota::per_hour(1);
const ZERO: Duration = Duration::ZERO;

#[test]
fn a_constructor_panics_where_it_is_called_with_the_sentence_of_its_error() {
    let memory = MemoryStore::new;
    let limiter = || Limiter::new(memory(), [Rule::new("a", HOURLY).ban(Ban::new(1, HOUR, HOUR))]);
    let (ramp, job, four) = (Ramp::new(), || Key::new("job", "mail"), NonZeroU32::new(4).expect("it is not zero"));
    assert_panics(
        || FleetShedLayer::new(memory(), "a", HOURLY, 0.5),
        FleetShedLayer::try_new(memory(), "a", HOURLY, 0.5),
    );
    assert_panics(|| WorkerShedLayer::new("a name", four), WorkerShedLayer::try_new("a name", four));
    assert_panics(|| WorkerShedLayer::measured("a name", || 0.5), WorkerShedLayer::try_measured("a name", || 0.5));
    assert_panics(|| BackPressureLayer::new(limiter(), job()), BackPressureLayer::try_new(limiter(), job()));
    assert_panics(|| ramp.thresholds(0.8, 0.7), ramp.try_thresholds(0.8, 0.7));
    assert_panics(|| ramp.after(HOUR, HOUR), ramp.try_after(HOUR, HOUR));
    assert_panics(|| ramp.recovery(ZERO), ramp.try_recovery(ZERO));
}
