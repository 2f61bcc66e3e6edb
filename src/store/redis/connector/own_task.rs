//! Running the application's closures apart from the connections.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::task::{JoinError, JoinSet};

/// How long to wait between two looks whether a closure that blocks has returned.
const PAUSE: Duration = Duration::from_millis(20);

/// The tasks of one closure.
#[derive(Clone, Default)]
pub(super) struct OwnTasks {
    /// Those that their callers gave up, and where they run: they end at once, unless they block.
    given_up: Arc<Mutex<Vec<Place>>>,
}

/// A task, and the runtime that it is on.
type Place = (Id, Weak<()>);

impl OwnTasks {
    /// Calls a closure, and waits for what it returns, in a task of its own: the caller drives a connection
    /// for others too, which a closure that blocks its thread, or panics, must not stop.
    ///
    /// Waits first while calls that were given up block half of the runtime's threads.
    ///
    /// # Errors
    ///
    /// If the closure or its future panics, or the runtime shuts down.
    ///
    /// # Cancellation
    ///
    /// The task is aborted: its future is dropped as soon as it is not being polled.
    pub(super) async fn run<F, T>(&self, call: F) -> Result<T::Output, JoinError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Future<Output: Send + 'static> + Send + 'static,
    {
        let here = Handle::current();
        while self.blocking(here.id()) >= (here.metrics().num_workers() / 2).max(1) {
            tokio::time::sleep(PAUSE).await;
        }
        let is_there = Arc::new(());
        let _given_up = Caller { tasks: self, runtime: here.id(), task: Arc::downgrade(&is_there) };
        let mut tasks = JoinSet::new();
        // Two tasks wake another worker, where one alone would run on this one: if the closure blocks that,
        // nobody else would look at I/O and timers meanwhile.
        tokio::spawn(async {});
        tasks.spawn(async move {
            let result = call().await;
            drop(is_there);
            result
        });
        tasks.join_next().await.expect("a task was spawned")
    }

    /// How many tasks on a runtime are there still that were given up.
    fn blocking(&self, runtime: Id) -> usize {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.retain(|(_, task)| task.strong_count() > 0);
        given_up.iter().filter(|(place, _)| *place == runtime).count()
    }
}

/// Who waits for a task.
struct Caller<'a> {
    tasks: &'a OwnTasks,
    runtime: Id,
    task: Weak<()>,
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if self.task.strong_count() > 0 {
            let mut given_up = self.tasks.given_up.lock().unwrap_or_else(PoisonError::into_inner);
            given_up.push((self.runtime, self.task.clone()));
        }
    }
}
