//! Settings that can never work are errors when a store is built, and panics of the other version.

use std::time::Duration;

use futures::executor::block_on;
use tokio::runtime::Builder;
use tollgate::Quota;
use tollgate::store::{Ask, Check, Store};
use tollgate_sql::BackendStore;

use crate::panics::assert_panics;
use crate::support::check;
use crate::support::table::Table;

fn table() -> Table {
    Table::new(|| Duration::ZERO, Duration::ZERO)
}

fn one() -> [Check; 1] {
    [check("ada", Quota::per_second(1), 1)]
}

#[test]
fn a_store_is_built_with_any_setting_but_zero() {
    let builder =
        |timeout, transactions| BackendStore::builder(table()).timeout(timeout).max_transactions(transactions);
    for (timeout, transactions) in [(Duration::from_nanos(1), 1), (Duration::MAX, usize::MAX)] {
        let store = builder(timeout, transactions).try_build().expect("it may decide");
        drop(block_on(store.decide(&one(), Ask::default()).wait()));
    }
    for (timeout, transactions) in [(Duration::ZERO, 1), (Duration::MAX, 0)] {
        let build = || builder(timeout, transactions).build();
        assert!(builder(timeout, transactions).try_build().is_err_and(|error| error.is_invalid()));
        assert_panics(build, builder(timeout, transactions).try_build());
    }
}

#[test]
fn what_need_not_wait_needs_no_timers() {
    let without_timers = Builder::new_current_thread().build().expect("a runtime");
    let decided = async { BackendStore::new(table()).decide(&one(), Ask::default()).wait().await };
    assert!(without_timers.block_on(decided).is_ok());
}
