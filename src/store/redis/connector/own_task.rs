//! Running the application's closures apart from the connections.

use tokio::task::{JoinError, JoinSet};

/// Calls a closure, and waits for what it returns, in a task of its own: the caller drives a connection
/// for others too, which a closure that blocks its thread, or panics, must not stop.
///
/// # Errors
///
/// If the closure or its future panics, or the runtime shuts down.
///
/// # Cancellation
///
/// The task is aborted: its future is dropped as soon as it is not being polled.
pub(super) async fn in_own_task<F, T>(call: F) -> Result<T::Output, JoinError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Future<Output: Send + 'static> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    // Two tasks wake another worker, where one alone would run on this one: if the closure blocks that,
    // nobody else would look at I/O and timers meanwhile.
    tokio::spawn(async {});
    tasks.spawn(async move { call().await });
    tasks.join_next().await.expect("a task was spawned")
}
