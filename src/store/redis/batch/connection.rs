//! A connection and the calls on it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use deadpool_redis::redis::aio::MultiplexedConnection;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::call::{self, Answer, Call};
use super::server::Server;
use crate::core::Error;
use crate::store::redis::connections::{Driver, Failure, Link, Room};

/// A connection, and which one in a row it is.
#[derive(Clone)]
pub(in crate::store::redis) struct Shared {
    pub(in crate::store::redis) handle: MultiplexedConnection,
    pub(super) number: u64,
    /// How many questions were answered on it.
    answers: Arc<AtomicU64>,
}

impl Shared {
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn count_answer(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A connection, what sends and receives on it, and the calls that wait for an answer.
pub(super) struct Connection {
    pub(super) shared: Shared,
    driver: Driver,
    /// Its place in the pool, as long as calls are made on it.
    pub(super) room: Option<Room>,
    pub(super) calls: SmallVec<[Call; 2]>,
    /// Until when it may be polled for late answers, once no new calls are made on it.
    pub(super) polled_until: Option<Instant>,
}

impl Connection {
    pub(super) fn new(link: Link) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Link { connection: handle, driver, room } = link;
        let shared = Shared { handle, number: NEXT.fetch_add(1, Ordering::Relaxed), answers: Arc::default() };
        Self { shared, driver, room, calls: SmallVec::new(), polled_until: None }
    }

    /// Sends and receives; `true` once the connection has ended.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        self.driver.as_mut().poll(cx).is_ready()
    }

    /// How many batches of calls are on their way.
    pub(super) fn rounds(&self) -> usize {
        let mut rounds: SmallVec<[u64; 4]> = self.calls.iter().map(|call| call.round).collect();
        rounds.dedup();
        rounds.len()
    }

    /// Whether calls wait for an answer on it.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Fails what is left of its calls, on a connection that was given up before: that was counted then.
    pub(super) fn fail(mut self, server: &dyn Server, error: Error) {
        let error = server.error(error);
        for Call { jobs, permit, .. } in self.calls.drain(..) {
            server.learn(permit, Some(&Failure::Unsent));
            call::fail(jobs, &error);
        }
    }

    /// Its calls that were not answered.
    pub(super) fn into_calls(self) -> SmallVec<[Call; 2]> {
        self.calls
    }

    /// The calls that were answered, and how.
    pub(super) fn answered(&mut self, cx: &mut Context<'_>) -> SmallVec<[(Call, Answer); 2]> {
        let mut answered = SmallVec::new();
        let mut place = 0;
        while let Some(call) = self.calls.get_mut(place) {
            match call.poll(cx) {
                Poll::Ready(answer) => answered.push((self.calls.remove(place), answer)),
                Poll::Pending => place += 1,
            }
        }
        answered
    }
}
