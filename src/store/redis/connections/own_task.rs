//! Running the application's closures apart from the connections.
//!
//! The closures for credentials and for dialing come in; their results go out. They are called
//! while a lane connects, and a lane serves many callers: a closure that blocks its thread, or
//! panics, must not stop it. So each call is a task of its own, which is polled only while it has
//! a permit for a thread. There are permits for half of the runtime's threads, so that timers and
//! decisions go on however many calls block, whenever they do so, and whoever still waits for them.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, ready};

use tokio::runtime::{Handle, Id};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinError;

/// The tasks of a store's closures.
#[derive(Clone, Default)]
pub(in crate::store::redis) struct OwnTasks {
    /// For each runtime, the threads that closures may still block.
    threads: Arc<Mutex<Vec<Threads>>>,
}

/// A runtime, and how many of its threads are free.
type Threads = (Id, Arc<Semaphore>);

impl OwnTasks {
    /// Calls a closure, and waits for what it returns, in a task of its own: the caller drives a connection
    /// for others too, which a closure that blocks its thread, or panics, must not stop.
    ///
    /// The task is polled only while it has one of the permits for half of the runtime's threads, so it waits while others
    /// block them.
    ///
    /// # Errors
    ///
    /// If the closure or its future panics, or the runtime shuts down.
    ///
    /// # Cancellation
    ///
    /// The closure's future is dropped as soon as there is a permit.
    pub(super) async fn run<F, T>(&self, call: F) -> Result<T::Output, JoinError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Future<Output: Send + 'static> + Send + 'static,
    {
        let threads = self.threads_here();
        // Dropped with this future: then nobody waits for the call any more.
        let (_caller, caller_left) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let mut permit = pin!(Arc::clone(&threads).acquire_owned());
            let mut caller_left = pin!(caller_left);
            let mut called: Pin<Box<dyn Future<Output = T::Output> + Send>> = Box::pin(async move { call().await });
            poll_fn(|cx| {
                let thread = ready!(permit.as_mut().poll(cx));
                permit.set(Arc::clone(&threads).acquire_owned());
                // Another worker has to look at I/O and timers while this one may be blocked. It wakes for a task that it can
                // take, which is the first of two: the last one stays with this worker.
                tokio::spawn(async {});
                tokio::spawn(async {});
                if caller_left.as_mut().poll(cx).is_ready() {
                    // Dropping it may block, too.
                    called = Box::pin(std::future::pending());
                    return Poll::Ready(None);
                }
                let polled = called.as_mut().poll(cx);
                drop(thread);
                polled.map(Some)
            })
            .await
        });
        Ok(task.await?.expect("the caller waits"))
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

    /// Calls that take a thread for a while, each after `before`, and how late a timer was meanwhile.
    async fn lateness(calls: usize, before: Duration, blocks: Duration) -> (usize, Duration) {
        let (tasks, running, most) =
            (OwnTasks::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let calls: Vec<_> = (0..calls)
            .map(|_| {
                let (tasks, running, most) = (tasks.clone(), Arc::clone(&running), Arc::clone(&most));
                let block = move || async move {
                    tokio::time::sleep(before).await;
                    tokio::task::yield_now().await;
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(blocks);
                    running.fetch_sub(1, Ordering::SeqCst);
                };
                tokio::spawn(async move { tasks.run(block).await.expect("it does not panic") })
            })
            .collect();
        let (start, mut late) = (Instant::now(), Duration::ZERO);
        while start.elapsed() < before + blocks {
            let tick = Instant::now();
            tokio::time::sleep(Duration::from_millis(5)).await;
            late = late.max(tick.elapsed());
        }
        for call in calls {
            call.await.expect("it does not panic");
        }
        (most.load(Ordering::SeqCst), late)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn one_that_blocks_after_a_timer_keeps_no_timer_waiting() {
        let (_, late) =
            tokio::spawn(lateness(1, Duration::from_millis(2), Duration::from_millis(1_500))).await.expect("no panic");
        assert!(late < Duration::from_millis(750), "{late:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn however_many_block_after_a_timer_half_of_the_threads_stay_free() {
        let (most, late) =
            tokio::spawn(lateness(8, Duration::from_millis(2), Duration::from_millis(300))).await.expect("no panic");
        assert_eq!(most, 2, "of four threads");
        assert!(late < Duration::from_millis(200), "{late:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn those_that_block_when_they_are_dropped_leave_half_of_the_threads_free() {
        struct Blocks(Arc<AtomicUsize>, Arc<AtomicUsize>);
        impl Drop for Blocks {
            fn drop(&mut self) {
                self.1.fetch_max(self.0.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let (tasks, running, most) =
            (OwnTasks::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let calls = (0..8).map(|_| {
            let blocks = Blocks(Arc::clone(&running), Arc::clone(&most));
            let call = tasks.run(move || async move {
                let _blocks = blocks;
                std::future::pending::<()>().await;
            });
            tokio::time::timeout(Duration::from_millis(20), call)
        });
        assert!(futures::future::join_all(calls).await.iter().all(Result::is_err));
        tasks.run(|| async {}).await.expect("they come back");
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(most.load(Ordering::SeqCst), 2, "of four threads");
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
