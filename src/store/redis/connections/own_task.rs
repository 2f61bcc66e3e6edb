//! Running the application's closures for credentials and for dialing apart from the connection, which serves others,
//! so that one that panics does not end it.

use tokio::task::{JoinError, JoinSet};

/// Calls a closure, and waits for what it returns, in a task of its own.
///
/// # Errors
///
/// If the closure or its future panics.
///
/// # Cancellation
///
/// The closure's future is dropped where it awaits something.
pub(super) async fn own_task<F, T>(call: F) -> Result<T::Output, JoinError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Future<Output: Send + 'static> + Send + 'static,
{
    let mut task = JoinSet::new();
    task.spawn(async move { call().await });
    task.join_next().await.expect("there is one task")
}
