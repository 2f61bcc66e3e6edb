//! What a thread of its own sees meanwhile: stalls of the machine, and circuit breakers that open.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, fs};

use tollgate::store::BreakerState;

use crate::rig::ms;

const GRAIN: Duration = ms(1);
/// Stalls so long take much of a decision's budget.
const BUSY: Duration = ms(40);

/// Tells the state of the breaker of a layer.
type State = Box<dyn Fn() -> BreakerState + Send>;

pub(crate) struct Watch {
    layer: Arc<Mutex<Option<State>>>,
    stop: Sender<()>,
    thread: JoinHandle<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// How often the breaker opened.
    pub(crate) opened: usize,
    /// The longest that this thread or a server of ours waited for its turn.
    stall: Duration,
}

impl Watch {
    pub(crate) fn start() -> Self {
        let (layer, (stop, stopped)) = (Arc::<Mutex<Option<State>>>::default(), channel::<()>());
        let watched = Arc::clone(&layer);
        let thread = thread::spawn(move || {
            let (mut seen, mut was_open, mut last) = (Seen::default(), false, Instant::now());
            let mut servers = Servers::of_this_process();
            while stopped.recv_timeout(GRAIN) == Err(RecvTimeoutError::Timeout) {
                let state = watched.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|state| state());
                let is_open = state == Some(BreakerState::Open);
                seen.opened += usize::from(is_open && !was_open);
                let stall = last.elapsed().saturating_sub(GRAIN);
                seen.stall = seen.stall.max(stall).max(servers.longest_wait());
                (was_open, last) = (is_open, Instant::now());
            }
            seen
        });
        Self { layer, stop, thread }
    }

    /// Watches the breaker of a layer too.
    pub(crate) fn breaker_of(&self, state: impl Fn() -> BreakerState + Send + 'static) {
        *self.layer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(state));
    }

    pub(crate) fn stop(self) -> Seen {
        drop(self.stop);
        self.thread.join().expect("watching does not fail")
    }
}

/// The processes that this one has started, each with how long it has waited for a processor so far, as Linux counts
/// it when the wait has ended. A thread that mostly sleeps, as the watching one, gets its turn before they do.
struct Servers(Vec<(PathBuf, Duration)>);

impl Servers {
    fn of_this_process() -> Self {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        let files = children.flat_map(|children| {
            children.split_whitespace().map(|id| PathBuf::from(format!("/proc/{id}/schedstat"))).collect::<Vec<_>>()
        });
        Self(files.map(|file| (file, Duration::MAX)).collect())
    }

    /// The longest that one of them waited since this was asked last.
    fn longest_wait(&mut self) -> Duration {
        let waits = self.0.iter_mut().filter_map(|(file, before)| {
            let text = fs::read_to_string(file).ok()?;
            let now = Duration::from_nanos(text.split(' ').nth(1)?.parse().ok()?);
            Some(now.saturating_sub(std::mem::replace(before, now)))
        });
        waits.max().unwrap_or_default()
    }
}

impl Seen {
    pub(crate) fn is_of_a_busy_machine(self) -> bool {
        self.stall > BUSY
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "breaker opened {} times, machine stalled {:?} at most", self.opened, self.stall)
    }
}
