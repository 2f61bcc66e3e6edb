//! A database that panics where nobody expects it.

use std::future::pending;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::store::{Ask, Change, Receipt, ReceiptItem, Settlement, StateId, StateWrite, Store};
use tollgate::{Error, Quota};
use tollgate_sql::{BackendStore, Committed, Loaded, StateBackend, StateTx};

use crate::support::{check, counter};

/// Commits nothing.
struct Nothing;

impl StateTx for Nothing {
    async fn commit(self, _: Vec<StateWrite>) -> Result<Committed, Error> {
        Ok(Committed::Written)
    }
}

/// The first load waits, and panics when it is dropped.
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
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
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
    // Without a runtime it is dropped when it has to wait.
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(decide));
    assert!(dropped.is_err(), "it panics");
    let (next, last) = (begin(), begin());
    assert!(runtime.block_on(next.wait()).is_ok());
    assert!(runtime.block_on(last.wait()).is_ok());
}

/// The first three loads panic.
#[derive(Default)]
struct PanicsAgain(AtomicUsize);

impl StateBackend for PanicsAgain {
    type Tx = Nothing;

    async fn load(&self, ids: &[StateId]) -> Result<Loaded<Nothing>, Error> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(self.0.fetch_add(1, Ordering::SeqCst) > 2, "the load panics");
        Ok(Loaded::new(Duration::from_secs(1_800_000_000), vec![None; ids.len()], Nothing))
    }
}

#[tokio::test]
async fn loads_that_panic_fail_their_own_requests_and_no_process() {
    let store = BackendStore::new(PanicsAgain::default());
    let one = check("ada", Quota::per_hour(100), 1);
    for _ in 0..3 {
        let all = futures::future::join_all((0..2).map(|_| store.decide(slice::from_ref(&one), Ask::default()).wait()));
        drop(all.await);
    }
    assert!(store.decide(slice::from_ref(&one), Ask::default()).wait().await.is_ok());
}

/// Each load panics at once.
struct PanicsAtOnce;

impl StateBackend for PanicsAtOnce {
    type Tx = Nothing;

    async fn load(&self, ids: &[StateId]) -> Result<Loaded<Nothing>, Error> {
        panic!("the load of {ids:?} panics");
    }
}

#[tokio::test]
async fn a_settlement_does_not_panic_with_the_database() {
    let store = BackendStore::new(PanicsAtOnce);
    let id = store.capabilities(&[]).expect("it supports nothing").id.expect("it has one");
    let receipt = Receipt::new(id, [ReceiptItem::new(counter("ada", Quota::per_hour(100)), 1, 0)]);
    let settled = store.settle(receipt, &[Settlement::new(0, Change::Refund(1))]).wait().await;
    assert!(settled.expect_err("nothing was refunded").is_store());
}
