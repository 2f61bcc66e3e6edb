//! Two stores on one table, as two processes would have them: together they admit what the limit has.
//!
//! ```text
//! cargo run -p tollgate-sql --example table
//! ```

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate::store::{StateId, StateWrite};
use tollgate::{Error, Key, Limiter, Quota, Rule};
use tollgate_sql::{BackendStore, Committed, Loaded, StateBackend, StateTx};

/// The number of its last write, and the state.
type Row = (u64, Option<Vec<u8>>);

/// A table in memory.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<HashMap<StateId, Row>>>);

/// The versions that were loaded.
struct Tx(Table, Vec<(StateId, u64)>);

impl StateBackend for Table {
    type Tx = Tx;

    async fn load(&self, ids: &[StateId]) -> Result<Loaded<Tx>, Error> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found: Vec<_> = ids.iter().map(|id| rows.get(id).cloned().unwrap_or_default()).collect();
        let versions = ids.iter().cloned().zip(found.iter().map(|(version, _)| *version)).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let states = found.into_iter().map(|(_, state)| state).collect();
        Ok(Loaded::new(now, states, Tx(self.clone(), versions)))
    }
}

impl StateTx for Tx {
    async fn commit(self, writes: Vec<StateWrite>) -> Result<Committed, Error> {
        let Self(table, versions) = self;
        let mut rows = table.0.lock().unwrap_or_else(PoisonError::into_inner);
        let version = |id: &StateId| rows.get(id).map_or(0, |(version, _)| *version);
        if versions.iter().any(|(id, loaded)| version(id) != *loaded) {
            return Ok(Committed::Conflict);
        }
        for StateWrite { id, state, .. } in writes {
            let row = rows.entry(id).or_default();
            *row = (row.0 + 1, state);
        }
        Ok(Committed::Written)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let table = Table::default();
    let process = || Limiter::new(BackendStore::new(table.clone()), [Rule::new("mail", Quota::per_minute(3))]);
    let (one, two) = (process(), process());
    let ada = Key::new("user", "ada");
    for limiter in [&one, &two, &one, &two] {
        let decision = limiter.check(&ada).await?;
        match decision.retry_after() {
            None => println!("allowed: {} remaining", decision.outcomes()[0].remaining()),
            Some(wait) => println!("denied: retry after {} s", wait.as_secs_f64().ceil()),
        }
    }
    for (id, (version, state)) in table.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("{id}: {} bytes, written {version} times", state.as_ref().map_or(0, Vec::len));
    }
    Ok(())
}
