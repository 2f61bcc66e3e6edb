//! A store on a database that others implement.

mod compared;
mod conformance;
mod failing;
mod nonsense;
mod panics;
mod settings;
mod settled;
mod support;
mod together;

use std::sync::Arc;
use std::time::Duration;

use tollgate::Error;
use tollgate::store::{Ask, Check, Store, StoreDecision};
use tollgate::test_util::ManualClock;
use tollgate_sql::BackendStore;

use crate::support::table::Table;

/// A store on a table, and both of them.
struct Rig {
    clock: ManualClock,
    table: Table,
    store: Arc<BackendStore<Table>>,
}

const BUDGET: Duration = Duration::from_millis(100);

impl Rig {
    fn new(trip: Duration) -> Self {
        let clock = ManualClock::new();
        let shown = clock.clone();
        let table = Table::new(move || shown.now(), trip);
        let store = BackendStore::builder(table.clone()).timeout(BUDGET).build();
        Self { clock, table, store: Arc::new(store) }
    }

    async fn decide(&self, checks: &[Check]) -> Result<StoreDecision, Error> {
        self.store.decide(checks, Ask::default()).wait().await
    }

    async fn is_allowed(&self, check: &Check) -> bool {
        self.decide(std::slice::from_ref(check)).await.expect("the table is there").decision.is_allowed()
    }
}
