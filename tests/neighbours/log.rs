//! What is logged by a test's own thread.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Dispatch;
use tracing::dispatcher::DefaultGuard;

/// The lines of a log.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Notes what this thread logs until the guard is dropped.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        // While there is only one, a line first met by another test's thread is taken for one nobody reads.
        let (_other, told) = (log.dispatch(), log.dispatch());
        (log, tracing::dispatcher::set_default(&told))
    }

    /// The lines with a text.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    fn dispatch(&self) -> Dispatch {
        let log = self.clone();
        Dispatch::new(tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).finish())
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
