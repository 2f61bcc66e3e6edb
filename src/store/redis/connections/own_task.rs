//! Running the application's closures apart from the connections.
//!
//! The closures for credentials and for dialing come in; their results go out. They are called
//! while a lane connects, and a lane serves many callers: a closure that blocks its thread, or
//! panics, must not stop it. So each call runs in a task of its own, and of the calls that may
//! block their thread at most half of the runtime's threads are taken, so that timers and decisions
//! go on. A call may block its thread until its first poll returns, and again when it is given up
//! and its task does not end: it counts as blocking meanwhile.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::runtime::{Handle, Id};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};

/// The tasks of a store's closures.
#[derive(Clone, Default)]
pub(in crate::store::redis) struct OwnTasks {
    /// For each runtime, the threads that closures may still block.
    threads: Arc<Mutex<Vec<Threads>>>,
}

/// A runtime, and how many of its threads are free.
type Threads = (Id, Arc<Semaphore>);

/// The thread that a call may be blocking, which its task gives back at the latest when it ends.
type Thread = Mutex<Option<OwnedSemaphorePermit>>;

/// The one who waits for a call. When it gives up, the call counts as blocking its thread for as long as its task lives.
struct Caller {
    thread: Weak<Thread>,
    threads: Arc<Semaphore>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        let Some(thread) = self.thread.upgrade() else { return };
        let mut thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            // If none is left, nobody else is called until one of those that hold them ends.
            *thread = Arc::clone(&self.threads).try_acquire_owned().ok();
        }
    }
}

impl OwnTasks {
    /// Calls a closure, and waits for what it returns, in a task of its own: the caller drives a connection
    /// for others too, which a closure that blocks its thread, or panics, must not stop.
    ///
    /// Waits first while half of the runtime's threads are kept by closures that may block them: those that were called
    /// and have not awaited anything yet, and those that were given up and still run.
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
        let threads = self.threads_here();
        let thread = Arc::new(Mutex::new(Arc::clone(&threads).acquire_owned().await.ok()));
        let _caller = Caller { thread: Arc::downgrade(&thread), threads };
        let mut tasks = JoinSet::new();
        // Two tasks wake another worker, where one alone would run on this one: if the closure blocks that,
        // nobody else would look at I/O and timers meanwhile.
        tokio::spawn(async {});
        tasks.spawn(async move {
            let (mut first, mut called) = (true, pin!(async move { call().await }));
            poll_fn(|cx| {
                let polled = called.as_mut().poll(cx);
                if mem::take(&mut first) {
                    // It did not block.
                    *thread.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                polled
            })
            .await
        });
        tasks.join_next().await.expect("a task was spawned")
    }

    /// Returns the threads of the calling runtime that closures may block: half of its workers, at
    /// least one. Entries of runtimes without a call are dropped when another runtime calls first.
    ///
    /// # Panics
    ///
    /// Outside a runtime: only lanes call it, which run in one.
    fn threads_here(&self) -> Arc<Semaphore> {
        let here = Handle::current();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, threads)) = threads.iter().find(|(runtime, _)| *runtime == here.id()) {
            return Arc::clone(threads);
        }
        // Those of other runtimes that nobody uses may have ended.
        threads.retain(|(_, threads)| Arc::strong_count(threads) > 1);
        let half = Arc::new(Semaphore::new((here.metrics().num_workers() / 2).max(1)));
        threads.push((here.id(), Arc::clone(&half)));
        half
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn however_many_are_called_at_once_half_of_the_threads_stay_free() {
        let (tasks, running, most) =
            (OwnTasks::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let calls: Vec<_> = (0..12)
            .map(|_| {
                let (tasks, running, most) = (tasks.clone(), Arc::clone(&running), Arc::clone(&most));
                tokio::spawn(async move {
                    let block = move || {
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(20));
                        running.fetch_sub(1, Ordering::SeqCst);
                        async {}
                    };
                    tasks.run(block).await.expect("it does not panic");
                })
            })
            .collect();
        let start = Instant::now();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(start.elapsed() < Duration::from_secs(5), "timers go on");
        for call in calls {
            call.await.expect("it does not panic");
        }
        assert_eq!(most.load(Ordering::SeqCst), 2, "of four threads");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn those_that_are_given_up_and_block_leave_half_of_the_threads_free() {
        let (tasks, running, most) =
            (OwnTasks::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        for _ in 0..6 {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            let block = move || async move {
                tokio::task::yield_now().await;
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(300));
                running.fetch_sub(1, Ordering::SeqCst);
            };
            tokio::time::timeout(Duration::from_millis(20), tasks.run(block)).await.expect_err("it blocks");
        }
        assert_eq!(most.load(Ordering::SeqCst), 2, "of four threads");
        tasks.run(|| async {}).await.expect("they come back");
    }

    #[tokio::test]
    async fn those_that_await_something_are_called_at_once_on_one_thread() {
        let (tasks, arrived) = (OwnTasks::default(), Arc::new(tokio::sync::Barrier::new(5)));
        let all = (0..5).map(|_| {
            let (tasks, arrived) = (tasks.clone(), Arc::clone(&arrived));
            async move { tasks.run(move || async move { arrived.wait().await.is_leader() }).await }
        });
        let leaders = futures::future::join_all(all).await;
        assert_eq!(leaders.into_iter().filter(|leads| matches!(leads, Ok(true))).count(), 1);
    }

    #[tokio::test]
    async fn those_that_are_given_up_keep_no_thread() {
        let tasks = OwnTasks::default();
        for _ in 0..3 {
            let endless = tasks.run(std::future::pending::<()>);
            tokio::time::timeout(Duration::from_millis(5), endless).await.expect_err("it never ends");
        }
        tasks.run(|| async {}).await.expect("there is room for it");
    }
}
