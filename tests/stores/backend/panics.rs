//! A database that panics where nobody expects it.

use std::future::pending;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::store::{Ask, BackendStore, Committed, Loaded, StateBackend, StateId, StateTx, Write};
use tollgate::{Error, Quota, Store};

use crate::support::checks::check;

/// Commits nothing.
struct Nothing;

impl StateTx for Nothing {
    async fn commit(self, _: Vec<Write>) -> Result<Committed, Error> {
        Ok(Committed::Written)
    }
}

/// The second load waits, and panics when it is dropped.
#[derive(Default)]
struct PanicsWhenDropped(AtomicUsize);

struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("the load panics when it is dropped");
    }
}

impl StateBackend for PanicsWhenDropped {
    type Tx = Nothing;

    async fn load(&self, ids: &[StateId]) -> Result<Loaded<Nothing>, Error> {
        if self.0.fetch_add(1, Ordering::SeqCst) == 1 {
            let _panics = Panics;
            pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(Loaded::new(Duration::from_secs(1_800_000_000), vec![None; ids.len()], Nothing))
    }
}

#[test]
fn a_load_that_panics_when_it_is_dropped_stops_no_later_request() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let store = BackendStore::new(PanicsWhenDropped::default());
    let one = check("ada", Quota::per_hour(100), 1);
    let decide = || store.decide(slice::from_ref(&one), Ask::default());
    let begin = || {
        let _entered = runtime.enter();
        decide()
    };
    let first = begin();
    // Without a runtime, so it is dropped when it has to wait.
    let second = decide();
    assert!(runtime.block_on(first.wait()).is_ok());
    assert!(runtime.block_on(second.wait()).expect_err("it was dropped").is_store());
    // The last one waits for the one before, which has to start it.
    let (third, last) = (begin(), begin());
    assert!(runtime.block_on(third.wait()).is_ok());
    assert!(runtime.block_on(last.wait()).is_ok());
}
