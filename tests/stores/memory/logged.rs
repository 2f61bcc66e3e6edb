//! Whoever writes the log may ask the store that logs.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tollgate::store::{Ask, BanCheck, Change, Check, Counter, MaybeFuture, Store};
use tollgate::{Ban, Key, MemoryStore, Quota};
use tracing::{Dispatch, dispatcher};
use tracing_subscriber::fmt::MakeWriter;

const HOUR: Duration = Duration::from_secs(3_600);
const ONE: Quota = Quota::fixed_window(1, HOUR);

/// Asks a store about the same key at each line.
#[derive(Clone)]
struct Asking(MemoryStore, mpsc::Sender<()>);

/// Of a policy of its own, as lines are bounded for each.
fn counter(policy: &str) -> Counter {
    Counter::new(policy.try_into().expect("a valid name"), Key::new("key", "ada"), ONE)
}

fn banning() -> Check {
    Check::new(counter("by-requests"), 1).ban(BanCheck::new(Ban::new(1, HOUR, HOUR)))
}

impl io::Write for Asking {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        drop(self.0.decide(&[banning()], Ask::default()));
        let _ = self.1.send(());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Asking {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Does something with a store whose log asks that store; returns how many lines it wrote.
fn lines_of(act: impl FnOnce(&MemoryStore) + Send + 'static) -> usize {
    let (store, (sender, lines)) = (MemoryStore::new(), mpsc::channel());
    let (done, waits) = mpsc::channel();
    thread::spawn(move || {
        let log =
            || Dispatch::new(tracing_subscriber::fmt().with_writer(Asking(store.clone(), sender.clone())).finish());
        // While there is only one, a line first met by another test's thread is taken for one nobody reads.
        let (log, _other) = (log(), log());
        dispatcher::with_default(&log, || act(&store));
        done.send(()).expect("the test waits");
    });
    waits.recv_timeout(Duration::from_secs(10)).expect("neither waits for the other");
    lines.try_iter().count()
}

#[test]
fn a_ban_that_begins_with_a_request_is_logged_without_a_lock() {
    let lines = lines_of(|store| {
        for _ in 0..2 {
            let MaybeFuture::Ready(decided) = store.decide(&[banning()], Ask::default()) else { panic!("at once") };
            drop(decided);
        }
    });
    assert_eq!(lines, 1);
}

#[test]
fn a_strike_by_hand_that_bans_is_logged_without_a_lock() {
    let lines = lines_of(|store| {
        let MaybeFuture::Ready(struck) = store.adjust(&counter("by-hand"), Change::Strike(Ban::new(1, HOUR, HOUR)))
        else {
            panic!("at once")
        };
        assert_eq!(struck.expect("memory never fails").units, 1);
    });
    assert_eq!(lines, 1);
}
