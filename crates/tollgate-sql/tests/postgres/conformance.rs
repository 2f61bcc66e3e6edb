//! The crate's conformance suite, on PostgreSQL by the suite's clock, and on the server's own.

use std::time::Duration;

use tollgate::Error;
use tollgate::store::StateId;
use tollgate::test_util::ManualClock;
use tollgate_sql::postgres::Postgres;
use tollgate_sql::{BackendStore, Loaded, StateBackend};
use tollgate_test::{Conformance, conformance};

use crate::support::server::Server;
use crate::support::{AMPLE, database};

/// A database whose time is that of a test; its rows expire by the server's.
#[derive(Clone)]
struct AtClock {
    database: Postgres,
    clock: ManualClock,
}

impl StateBackend for AtClock {
    type Tx = <Postgres as StateBackend>::Tx;

    async fn load(&self, ids: &[StateId]) -> Result<Loaded<Self::Tx>, Error> {
        let loaded = self.database.load(ids).await?;
        Ok(Loaded::new(self.clock.now(), loaded.states, loaded.tx))
    }
}

/// Removes all states.
async fn empty(database: &Postgres) {
    let client = database.pool().get().await.expect("the server was started");
    client.batch_execute("TRUNCATE tollgate_states").await.expect("the table is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_on_postgresql_conforms() {
    let server = Server::start();
    let database = database(&server).await;
    let make = async |clock| {
        empty(&database).await;
        let backend = AtClock { database: database.clone(), clock };
        BackendStore::builder(backend).timeout(AMPLE).max_transactions(8).build()
    };
    let report = conformance(make).await;
    println!("{report}");
    report.assert_passed();
    assert!(report.compared() > 3_000 && report.left_out().next().is_none(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_on_postgresql_conforms_by_the_time_of_the_server() {
    let server = Server::start();
    let database = database(&server).await;
    let make = async |_| {
        empty(&database).await;
        database.store().expect("the pool has connections")
    };
    let report = Conformance::new(make).own_clock(Duration::from_secs(1)).run().await;
    println!("{report}");
    report.assert_passed();
    assert!(report.passed() > 10 && report.compared() > 500, "{report}");
}
