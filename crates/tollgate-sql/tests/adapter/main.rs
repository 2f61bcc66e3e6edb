//! A store on a database that others implement.

mod conformance;
mod failing;
mod nonsense;
#[path = "../../../../tests/support/panics.rs"]
mod panics;
mod settings;
mod settled;
mod support;
mod together;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate::Error;
use tollgate::store::{Ask, Check, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate_sql::BackendStore;

use crate::support::table::Table;

/// A store on a table, and both of them.
struct Rig {
    table: Table,
    store: Arc<BackendStore<Table>>,
}

const BUDGET: Duration = Duration::from_millis(100);

impl Rig {
    fn new(trip: Duration) -> Self {
        let clock = ManualClock::new();
        let table = Table::new(move || clock.now(), trip);
        let store = BackendStore::builder(table.clone()).timeout(BUDGET).build();
        Self { table, store: Arc::new(store) }
    }

    async fn decide(&self, checks: &[Check]) -> Result<StoreDecision, Error> {
        self.store.decide(checks, Ask::default()).wait().await
    }

    async fn is_allowed(&self, check: &Check) -> bool {
        self.decide(std::slice::from_ref(check)).await.expect("the table is there").decision.is_allowed()
    }
}

/// A runtime with a thread of its own.
fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}
