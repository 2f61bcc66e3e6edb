//! What is logged while a test runs.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::dispatcher::{DefaultGuard, set_default};
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::MakeWriter;

/// The lines of a log.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

/// As long as it is kept, what this thread logs is noted.
pub(crate) struct Noting {
    _guard: DefaultGuard,
    _other: Dispatch,
}

impl Log {
    /// Notes what this thread logs from now on.
    pub(crate) fn note(&self, level: Level) -> Noting {
        let subscriber = || {
            let lines = tracing_subscriber::fmt().with_writer(self.clone()).with_max_level(level).with_ansi(false);
            Dispatch::new(lines.finish())
        };
        // While there is only one, a line first met by another test's thread is taken for one nobody reads.
        let (other, noting) = (subscriber(), subscriber());
        Noting { _guard: set_default(&noting), _other: other }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// The lines with a text.
    pub(crate) fn lines(&self, text: &str) -> Vec<String> {
        self.text().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }

    /// How many lines hold a text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.lines(text).len()
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

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
