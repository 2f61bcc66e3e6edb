//! Tests of what happens to settlements while lanes come and go.

use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;

use super::super::samples::{settlement, timeout};
use super::super::server::Connecting;
use super::*;
use crate::store::redis::wire::Calls;

/// How long a thread may take to begin.
const BEGIN: Duration = Duration::from_millis(100);

/// A server that cannot be reached.
#[derive(Debug)]
struct Away;

impl Server for Away {
    fn connect(&self) -> Connecting {
        Box::pin(std::future::pending())
    }
}

fn lanes() -> Lanes {
    let settings = Settings { calls: Calls::default(), clock: None, batch_size: 1 };
    Plan { settings: Arc::new(settings), most: 1, runtime: None }.lanes(Arc::new(Away))
}

#[test]
fn settlements_that_found_no_lane_are_on_one_that_was_made_as_they_were_put_aside() {
    let (lanes, runtime) = (lanes(), Builder::new_current_thread().enable_all().build().expect("it can be built"));
    let home = &lanes.home;
    let settlement = settlement(0, 1, timeout(Instant::now(), 10_000));
    let lane = thread::scope(|scope| {
        let aside = lock(&home.orphans);
        let adopting = scope.spawn(|| home.adopt(vec![settlement]));
        thread::sleep(BEGIN);
        // As it is made: there is none to take over yet.
        let lane = home.start(runtime.handle());
        home.lanes.store(Arc::new(vec![Arc::clone(&lane)]));
        assert!(aside.is_empty());
        drop(aside);
        adopting.join().expect("it ends");
        lane
    });
    assert_eq!((lane.turns.with(|queue| queue.checks()), lock(&home.orphans).len()), (1, 0));
}
