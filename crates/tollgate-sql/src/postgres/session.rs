//! A connection in a transaction, which ends the transaction before it returns to the pool.

use std::time::Duration;

use deadpool_postgres::{ClientWrapper, Object};
use futures::FutureExt;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::sql::Statements;

const ABANDONED: Duration = Duration::from_secs(2);

/// Connection that is in a transaction, or about to begin one. Dropping it rolls back.
#[derive(Debug)]
pub(crate) struct Session {
    /// `None` once the connection has returned to the pool.
    client: Option<Object>,
    statements: Statements,
    /// Whether the reply to a call is unknown.
    is_waiting: bool,
}

impl Session {
    pub(crate) fn new(client: Object, statements: Statements) -> Self {
        Self { client: Some(client), statements, is_waiting: false }
    }

    /// If the future is dropped before the calls have returned, the connection waits for their replies before it is
    /// used again.
    pub(crate) async fn call<T>(&mut self, calls: impl AsyncFnOnce(&ClientWrapper, &Statements) -> T) -> T {
        self.is_waiting = true;
        let client = self.client.as_ref().expect("only `end` and `drop` take it");
        let result = calls(client, &self.statements).await;
        self.is_waiting = false;
        result
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.as_ref().is_none_or(|client| client.is_closed())
    }

    pub(crate) fn end(mut self) {
        drop(self.client.take());
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        if !self.is_waiting {
            // Sent by the first poll. The reply is not awaited, because all later replies of the connection follow it.
            drop(client.batch_execute("ROLLBACK").now_or_never());
            return;
        }
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(roll_back(Abandoned(Some(client))))),
            Err(_) => drop(Object::take(client)),
        }
    }
}

/// Connection whose calls were abandoned. Dropping it closes it, like when a runtime stops: in the pool it would keep
/// its transaction and the locks.
struct Abandoned(Option<Object>);

impl Drop for Abandoned {
    fn drop(&mut self) {
        drop(self.0.take().map(Object::take));
    }
}

/// Returns the connection to the pool only if the server confirms the rollback.
async fn roll_back(mut abandoned: Abandoned) {
    let Some(client) = &abandoned.0 else { return };
    if matches!(timeout(ABANDONED, client.batch_execute("ROLLBACK")).await, Ok(Ok(()))) {
        drop(abandoned.0.take());
    }
}
