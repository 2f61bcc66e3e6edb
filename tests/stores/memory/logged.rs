//! Whoever writes the log may ask the store that logs.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tollgate::store::{Check, Counter};
use tollgate::test_util::ManualClock;
use tollgate::{Key, MemoryStore, Quota};
use tracing::{Dispatch, dispatcher};

use super::decide;
use crate::support::time::memory;

const HOUR: Duration = Duration::from_secs(3_600);
const ONE: Quota = Quota::fixed_window(1, HOUR);

/// Of a policy of its own, as lines are bounded for each.
fn counter(policy: &str) -> Counter {
    Counter::new(policy.try_into().expect("a valid name"), Key::new("key", "ada"), ONE)
}

/// Asks a store about the same keys at each line.
struct Asking(MemoryStore, mpsc::Sender<()>);

impl io::Write for Asking {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = decide(&self.0, &["first", "second"].map(|policy| Check::new(counter(policy), 1)));
        let _ = self.1.send(());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn state_ahead_of_the_clock_is_logged_without_a_lock() {
    let (clock, (sender, lines)) = (ManualClock::new(), mpsc::channel());
    let store = memory(&clock);
    let checks = || ["first", "second"].map(|policy| Check::new(counter(policy), 1));
    let _ = decide(&store, &checks());
    clock.set(clock.now().saturating_sub(4 * HOUR));
    thread::spawn(move || {
        let asking = store.clone();
        let writer = move || Asking(asking.clone(), sender.clone());
        // While there is only one, a line first met by another test's thread is taken for one nobody reads.
        let log = || Dispatch::new(tracing_subscriber::fmt().with_writer(writer.clone()).finish());
        let (log, _other) = (log(), log());
        dispatcher::with_default(&log, || {
            let [first, second] = checks();
            let _ = decide(&store, &[first]);
            let _ = decide(&store, &[second, Check::new(counter("third"), 1)]);
        });
    });
    for what in ["alone", "among several"] {
        lines.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("{what}: one waits for the other"));
    }
}
