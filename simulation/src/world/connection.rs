//! What is known of a connection: what came over it, and whether anybody learns what became of that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::World;
use super::plan::Mishap;
use super::state::State;
use super::wishes::Wishes;
use crate::server::ReadOnly;

/// Mishaps that decisions are to meet.
pub(super) type Mishaps = VecDeque<Mishap>;

/// For so long clients receive answers that come late, less the time of one answer.
const LATE: Duration = Duration::from_secs(6);

/// As many connections clients keep for answers that come late.
const MOST_RETIRED: u64 = 4;

/// Refusals after which a command is asked again.
const ASKED_AGAIN: [&str; 4] = ["-NOSCRIPT", "-MOVED", "-ASK", "-TRYAGAIN"];

/// A connection as the world sees it.
#[derive(Debug)]
pub(super) struct Connection {
    /// Whose it is.
    pub(super) process: usize,
    pub(super) node: usize,
    /// Its number among those to its node.
    place: u64,
    /// Ends it.
    pub(super) cut: Arc<Notify>,
    /// Nothing passes any more.
    pub(super) is_swallowed: bool,
    /// It leads to a replica.
    pub(super) is_demoted: Option<ReadOnly>,
    /// Its answers are not those to its questions any more.
    is_out_of_step: bool,
    /// What ran, and whose answer is on its way.
    pending: Wishes,
    /// When that was.
    since: Instant,
    /// It was the world that ended it, not the client.
    pub(super) is_cut: bool,
    /// It was refused what a redirected call needs before it.
    is_not_asking: bool,
    /// What was answered last, and when.
    answered: (Instant, Wishes),
    /// What was refused, and is asked again if the client learns it.
    refused: Wishes,
    /// What is asked again once a script is loaded.
    missing: Wishes,
}

impl Connection {
    pub(super) fn new(process: usize, node: usize, place: u64) -> Self {
        Self {
            process,
            node,
            place,
            cut: Arc::default(),
            is_swallowed: false,
            is_demoted: None,
            is_out_of_step: false,
            pending: Wishes::new(),
            since: Instant::now(),
            is_cut: false,
            is_not_asking: false,
            answered: (Instant::now(), Wishes::new()),
            refused: Wishes::new(),
            missing: Wishes::new(),
        }
    }

    /// Whether it is of no use, and its client may not know it yet.
    pub(super) fn is_troubled(&self) -> bool {
        self.is_swallowed || self.is_demoted.is_some() || self.is_out_of_step || self.is_cut
    }

    /// Notes how a command was answered. Returns what ran without an answer that is believed, and what did
    /// not run and is not asked again.
    fn ran(&mut self, wishes: Wishes, reply: &[u8], mishap: Option<Mishap>) -> (Wishes, Wishes) {
        let (mut unanswered, is_error) = (Wishes::new(), reply.starts_with(b"-"));
        if matches!(mishap, Some(Mishap::Stray | Mishap::StrayBytes | Mishap::Half)) {
            self.is_out_of_step = true;
            // What came at the same time is not believed either.
            unanswered = std::mem::take(&mut self.answered.1);
        }
        self.is_cut |= matches!(mishap, Some(Mishap::CutAfter | Mishap::Half));
        let is_lost = self.is_out_of_step || self.is_swallowed;
        let was_not_asking = std::mem::replace(&mut self.is_not_asking, wishes.is_empty() && is_error);
        if wishes.is_empty() {
            // What a script was loaded for is not asked again if that failed.
            let never = if is_error { std::mem::take(&mut self.missing) } else { Wishes::new() };
            return (unanswered, never);
        }
        if is_error {
            return (unanswered, self.is_refused(wishes, reply, is_lost || was_not_asking));
        }
        self.missing.retain(|missing| !wishes.contains(missing));
        if is_lost {
            unanswered.append(&mut self.pending);
            unanswered.extend(wishes);
        } else {
            (self.pending, self.since) = (wishes, Instant::now());
        }
        (unanswered, Wishes::new())
    }

    /// Notes what was refused; returns it if it is not asked again, for good or as the client is so told.
    fn is_refused(&mut self, wishes: Wishes, reply: &[u8], is_for_good: bool) -> Wishes {
        if is_for_good || !ASKED_AGAIN.iter().any(|code| reply.starts_with(code.as_bytes())) {
            return wishes;
        }
        if reply.starts_with(b"-NOSCRIPT") {
            self.missing.extend(wishes);
        } else {
            self.refused = wishes;
        }
        Wishes::new()
    }
}

/// A connection that is there, until this is dropped.
pub(super) struct There(pub(super) World, pub(super) u64);

impl Drop for There {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if let Some(connection) = state.connections.remove(&self.1) {
            if connection.is_troubled() {
                state.is_troubled_until(Instant::now());
            }
            // Those since may have been retired too, and be gone by now.
            let since = state.nodes[connection.node].connections - connection.place;
            let is_one_of_many = since >= MOST_RETIRED;
            // A client that closes it before the answer comes has to have waited long for that.
            let is_late = connection.since.elapsed() > LATE || is_one_of_many;
            if connection.is_cut || connection.is_swallowed || is_late {
                state.unanswered(&connection.pending);
            }
            state.never_ran(&connection.refused);
            state.never_ran(&connection.missing);
        }
    }
}

impl State {
    /// Notes that a command has run on a connection.
    pub(super) fn has_run(&mut self, number: u64, wishes: Wishes, reply: &[u8], mishap: Option<Mishap>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let node = connection.node;
        if let Some(server) = self.nodes.get_mut(node).filter(|_| !wishes.is_empty()) {
            server.attempts = 0;
        }
        let (unanswered, never) = connection.ran(wishes, reply, mishap);
        self.never_ran(&never);
        self.unanswered(&unanswered);
    }

    /// Notes that the answer to a command has been sent.
    pub(super) fn is_answered(&mut self, number: u64) {
        self.open_since.fill(None);
        if let Some(connection) = self.connections.get_mut(&number) {
            let (now, answered) = (Instant::now(), std::mem::take(&mut connection.pending));
            if connection.answered.0 == now {
                connection.answered.1.extend(answered);
            } else {
                connection.answered = (now, answered);
            }
            connection.refused.clear();
        }
    }
}
