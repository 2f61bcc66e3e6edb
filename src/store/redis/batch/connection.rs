//! A connection and the calls in flight on it.
//!
//! The connection's two halves are separate: a handle, which can be cloned and queues commands
//! ([`Shared`]), and a driver, which writes and reads. Nothing is sent unless the driver is polled,
//! and only the runner at work on the lane polls it, so calls and socket make progress together, in
//! one task. Where the application supplies a pool, its connections are driven by tasks of their
//! own, and the driver here does nothing.
//!
//! The number of replies received is counted for the whole connection. Calls keep the number from when
//! they were made, and so distinguish a slow server from a silent one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use deadpool_redis::redis::aio::MultiplexedConnection;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::call::{self, Call, CallResult};
use super::server::Server;
use crate::core::Error;
use crate::store::redis::connections::{Driver, Failure, Link, Room};

/// A handle on a connection, to send on it, with its number. Clones are of the same connection.
#[derive(Clone)]
pub(in crate::store::redis) struct Shared {
    /// Queues commands; what it returns completes once the lane has driven the connection.
    pub(in crate::store::redis) handle: MultiplexedConnection,
    /// The number of the connection, unique in the process.
    pub(super) number: u64,
    /// The number of replies received on it, by all clones.
    replies: Arc<AtomicU64>,
}

impl Shared {
    /// Returns how many replies were received, on any clone. Errors of the server count too.
    pub(super) fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Counts a reply: the connection works.
    pub(super) fn count_reply(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A connection with its driver, and its calls in flight.
pub(super) struct Connection {
    /// The handle that calls are made with.
    pub(super) shared: Shared,
    /// Writes and reads while it is polled; ready once the connection has ended.
    driver: Driver,
    /// Its place in the pool, held as long as calls are made on it.
    pub(super) room: Option<Room>,
    /// The calls in flight, in the order in which they were made.
    pub(super) calls: SmallVec<[Call; 2]>,
    /// When it is closed at the latest, set when it is retired.
    pub(super) polled_until: Option<Instant>,
}

impl Connection {
    /// A connection without calls, from what a pool opened.
    pub(super) fn new(link: Link) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Link { connection: handle, driver, room } = link;
        let shared = Shared { handle, number: NEXT.fetch_add(1, Ordering::Relaxed), replies: Arc::default() };
        Self { shared, driver, room, calls: SmallVec::new(), polled_until: None }
    }

    /// Writes and reads all that it can. Returns whether the connection has ended, after which it
    /// must not be driven again.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        self.driver.as_mut().poll(cx).is_ready()
    }

    /// Returns how many rounds of calls are in flight. Calls of one round are next to each other.
    pub(super) fn rounds(&self) -> usize {
        let mut rounds: SmallVec<[u64; 4]> = self.calls.iter().map(|call| call.round).collect();
        rounds.dedup();
        rounds.len()
    }

    /// Returns whether calls are in flight on it.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Fails the calls in flight on a retired connection. Its loss was counted when it was retired,
    /// or it was closed for no failure, so the breaker's permits are released without a verdict.
    pub(super) fn fail(mut self, server: &dyn Server, error: Error) {
        let error = server.error(error);
        for Call { jobs, permit, .. } in self.calls.drain(..) {
            server.report(permit, Some(&Failure::Unsent));
            call::fail(jobs, &error);
        }
    }

    /// Returns the calls in flight and closes the connection.
    pub(super) fn into_calls(self) -> SmallVec<[Call; 2]> {
        self.calls
    }

    /// Removes and returns the calls that are complete, in the order in which they were made.
    pub(super) fn completed(&mut self, cx: &mut Context<'_>) -> Vec<(Call, CallResult)> {
        let mut completed = Vec::new();
        let mut place = 0;
        while let Some(call) = self.calls.get_mut(place) {
            match call.poll(cx) {
                Poll::Ready(result) => completed.push((self.calls.remove(place), result)),
                Poll::Pending => place += 1,
            }
        }
        completed
    }
}
