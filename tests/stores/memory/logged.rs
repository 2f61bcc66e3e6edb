//! Whoever writes the log may ask the store that logs.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tollgate::store::{BanCheck, Change, Check, Counter, Store};
use tollgate::{Ban, Key, MemoryStore, Quota};
use tracing::{Dispatch, dispatcher};

use super::decide;

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
        let _ = decide(&self.0, &["by-requests", "by-hand"].map(|policy| Check::new(counter(policy), 1)));
        let _ = self.1.send(());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn bans_are_logged_without_a_lock() {
    let (store, ban, (sender, lines)) = (MemoryStore::new(), Ban::new(1, HOUR, HOUR), mpsc::channel());
    thread::spawn(move || {
        let asking = store.clone();
        let writer = move || Asking(asking.clone(), sender.clone());
        // While there is only one, a line first met by another test's thread is taken for one nobody reads.
        let log = || Dispatch::new(tracing_subscriber::fmt().with_writer(writer.clone()).finish());
        let (log, _other) = (log(), log());
        dispatcher::with_default(&log, || {
            for _ in 0..2 {
                let _ = decide(&store, &[Check::new(counter("by-requests"), 1).ban(BanCheck::new(ban))]);
            }
            drop(store.adjust(&counter("by-hand"), Change::Strike(ban)));
        });
    });
    for what in ["by requests", "by hand"] {
        lines.recv_timeout(Duration::from_secs(10)).unwrap_or_else(|_| panic!("{what}: one waits for the other"));
    }
}
