//! Those who do nothing wrong, and what became of them.

use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tollgate::RedisStore;
use tollgate::store::{Ask, Store};

use crate::rig::{check, ms};

/// Who has no answer after this time has none.
const PATIENCE: Duration = ms(20_000);

/// What became of requests or decisions.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Of each that had an answer.
    took: Vec<Duration>,
    /// Why the others had none that counts.
    failures: Vec<String>,
}

/// What one request or decision came to, and how long it took.
pub(crate) type Answered = (Duration, Result<(), String>);

impl Tally {
    pub(crate) fn add(&mut self, (took, answer): Answered) {
        self.took.push(took);
        self.failures.extend(answer.err());
    }

    pub(crate) fn fail(&mut self, why: &str) {
        self.failures.push(why.to_owned());
    }

    pub(crate) fn failed(&self) -> usize {
        self.failures.len()
    }

    pub(crate) fn asked(&self) -> usize {
        self.took.len()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.took.iter().copied().max().unwrap_or_default()
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.took.extend(other.took);
        self.failures.extend(other.failures);
        self
    }

    /// Starts decisions over keys of their own, one every so often, and waits for all of them. The
    /// thread that starts them is none of the runtime's.
    pub(crate) fn of_steady(runtime: &Handle, store: &RedisStore, count: u32, apart: Duration) -> Self {
        let (answers, answered) = channel();
        for number in 0..count {
            let (store, answers, due) = (store.clone(), answers.clone(), Instant::now());
            runtime.spawn(async move {
                let answer = ask(&store, number).await;
                let _ = answers.send((due.elapsed(), answer));
            });
            thread::sleep(apart);
        }
        Self::of_answers(&answered, count)
    }

    /// Waits for so many answers.
    pub(crate) fn of_answers(answered: &Receiver<Answered>, count: u32) -> Self {
        let (mut tally, end) = (Self::default(), Instant::now() + PATIENCE);
        for _ in 0..count {
            match answered.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(answer) => tally.add(answer),
                Err(_) => tally.fail("no answer"),
            }
        }
        tally
    }
}

/// One decision over a key of its own, that must be made and made by Redis.
pub(crate) async fn ask(store: &RedisStore, number: u32) -> Result<(), String> {
    let decided = store.decide(&[check(&format!("other-{number}"), 1)], Ask::default()).wait().await;
    match decided {
        Ok(decided) if decided.decision.is_allowed() => Ok(()),
        Ok(_) => Err("denied".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} others failed, longest {:.1?}", self.failed(), self.asked(), self.longest())?;
        self.failures.first().map_or(Ok(()), |first| write!(f, ", the first with: {first}"))
    }
}
