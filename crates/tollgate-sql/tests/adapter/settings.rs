//! Settings that can never work are errors when a store is built, and panics of the other version.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::time::Duration;

use futures::executor::block_on;
use tokio::runtime::Builder;
use tollgate::Quota;
use tollgate::store::{Ask, Store};
use tollgate_sql::BackendStore;

use crate::support::check;
use crate::support::table::Table;

fn table() -> Table {
    Table::new(|| Duration::ZERO, Duration::ZERO)
}

#[test]
fn a_store_is_built_with_any_setting_or_not_at_all() {
    let times = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(u64::MAX), Duration::MAX];
    let sizes = [0, 1, usize::MAX / 2, usize::MAX];
    for timeout in times {
        for transactions in sizes {
            let builder = BackendStore::builder(table()).timeout(timeout).max_transactions(transactions);
            let made = builder.try_build();
            assert_eq!(made.is_err(), timeout.is_zero() || transactions == 0, "{timeout:?}, {transactions}");
            match made {
                Ok(store) => {
                    let check = check("ada", Quota::per_second(100), 1);
                    for _ in 0..20 {
                        drop(block_on(store.decide(slice::from_ref(&check), Ask::default()).wait()));
                    }
                }
                Err(error) => assert!(error.is_invalid(), "{error}"),
            }
        }
    }
    let without_timers = Builder::new_current_thread().build().expect("a runtime");
    let decided = async {
        let check = check("ada", Quota::per_second(1), 1);
        BackendStore::new(table()).decide(&[check], Ask::default()).wait().await
    };
    assert!(without_timers.block_on(decided).is_ok(), "what need not wait needs no timers");
}

#[test]
fn build_panics_with_the_sentence_of_the_error() {
    let builder = || BackendStore::builder(table()).max_transactions(0);
    let error = builder().try_build().expect_err("it decides nothing").to_string();
    assert_eq!(error, "0 transactions at once decide nothing: give at least 1");
    let panic = catch_unwind(AssertUnwindSafe(|| builder().build())).expect_err("it panics");
    assert_eq!(panic.downcast_ref::<String>(), Some(&error));
}
