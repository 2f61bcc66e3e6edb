//! Timers that stay set from one question to the next.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::runtime::{Handle, Id};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

/// As many as a server has questions in flight, mostly.
const KEPT: usize = 4;

/// Bounds how long answers are waited for.
///
/// A timer that is to go off before all others costs a system call: the thread that waits for events
/// has to learn of it. Where little else is timed, that is one for each question. So a timer stays
/// set when its question is answered, and serves the next ones until it goes off.
#[derive(Default)]
pub(super) struct Alarms {
    kept: Mutex<Vec<Alarm>>,
}

struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// It cannot be used in another, and must not be when this one has ended.
    runtime: Id,
}

impl Alarms {
    /// Waits for an answer until then at most.
    pub(super) async fn timeout_at<F: Future>(
        &self,
        until: Instant,
        mut asked: Pin<&mut F>,
    ) -> Result<F::Output, Elapsed> {
        let mut alarm = self.take(until);
        let answer = poll_fn(|cx| match asked.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => alarm.sleep.as_mut().poll(cx).map(|()| None),
        });
        let answer = answer.await;
        self.keep(alarm);
        match answer {
            Some(answer) => Ok(answer),
            // It was set for an earlier question, so some time may be left.
            None => timeout_at(until, asked).await,
        }
    }

    /// An alarm that goes off then, or earlier.
    fn take(&self, until: Instant) -> Alarm {
        let runtime = Handle::current().id();
        let Some(mut alarm) = self.lock().pop().filter(|alarm| alarm.runtime == runtime) else {
            return Alarm { sleep: Box::pin(sleep_until(until)), runtime };
        };
        if alarm.sleep.is_elapsed() || alarm.sleep.deadline() > until {
            alarm.sleep.as_mut().reset(until);
        }
        alarm
    }

    fn keep(&self, alarm: Alarm) {
        let mut kept = self.lock();
        if kept.len() < KEPT {
            kept.push(alarm);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Alarm>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::time::Duration;

    use tokio::runtime::Builder;

    use super::*;

    const BUDGET: Duration = Duration::from_millis(100);

    /// Asks what is answered soon.
    async fn ask(alarms: &Alarms, until: Instant) {
        alarms.timeout_at(until, pin!(tokio::task::yield_now())).await.expect("it comes in time");
    }

    async fn waits(alarms: &Alarms, budget: Duration) -> Duration {
        let start = Instant::now();
        alarms.timeout_at(start + budget, pin!(pending::<()>())).await.expect_err("there is no answer");
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_an_alarm_neither_shortens_nor_lengthens_a_budget() {
        let alarms = Alarms::default();
        for passed in [0, 30, 99, 100, 101, 250] {
            ask(&alarms, Instant::now() + BUDGET).await;
            tokio::time::advance(Duration::from_millis(passed)).await;
            assert_eq!(waits(&alarms, BUDGET).await, BUDGET, "{passed} ms later");
        }
        ask(&alarms, Instant::now() + 9 * BUDGET).await;
        assert_eq!(waits(&alarms, BUDGET).await, BUDGET, "an alarm that is set for later");
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_serves_the_next_question_and_few_are_kept() {
        let alarms = Alarms::default();
        let set_for = || alarms.lock()[0].sleep.deadline();
        let ask = || ask(&alarms, Instant::now() + BUDGET);
        ask().await;
        let first = set_for();
        tokio::time::advance(BUDGET / 2).await;
        ask().await;
        assert_eq!(set_for(), first);
        tokio::time::advance(BUDGET).await;
        ask().await;
        assert_eq!((set_for(), alarms.lock().len()), (Instant::now() + BUDGET, 1));
        let many = (0..3 * KEPT).map(|_| waits(&alarms, BUDGET));
        futures::future::join_all(many).await;
        assert_eq!(alarms.lock().len(), KEPT);
    }

    #[test]
    fn an_alarm_of_a_runtime_that_has_ended_is_not_used() {
        let alarms = Alarms::default();
        for _ in 0..2 {
            let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
            let waited = runtime.block_on(waits(&alarms, Duration::from_millis(5)));
            assert!(waited >= Duration::from_millis(5));
            runtime.block_on(alarms.timeout_at(Instant::now() + BUDGET, pin!(ready(())))).expect("it is there");
        }
    }
}
