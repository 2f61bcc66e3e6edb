//! Stalls of the machine.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const GRAIN: Duration = Duration::from_millis(1);

/// A thread that sees how long it waits for its turn.
pub(crate) struct Stalls {
    stop: Sender<()>,
    thread: JoinHandle<Duration>,
}

impl Stalls {
    pub(crate) fn start() -> Self {
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            let (mut longest, mut last) = (Duration::ZERO, Instant::now());
            while stopped.recv_timeout(GRAIN) == Err(RecvTimeoutError::Timeout) {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            longest.max(last.elapsed())
        });
        Self { stop, thread }
    }

    /// The longest wait since it was started.
    pub(crate) fn longest(self) -> Duration {
        drop(self.stop);
        self.thread.join().expect("it does not panic")
    }
}
