//! Reports to a tally: what one process was offered goes in, and the totals of all come out.
//!
//! A report is one call for each shard, all at the same time, and each is made once: it goes past the batches and
//! circuit breakers of decisions, as a process reports once in a tick. If one call fails, so does the report; what the
//! others added stays.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{ErrorKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::timeout_at;

use super::batch::{Timeout, no_runtime};
use super::connections;
use super::engine::Engine;
use super::wire::{ShardReport, ShardTotals, Way};
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::{Deadline, Report, Totals};

impl Engine {
    /// Adds a report to its tick and returns the totals of the last one, within the budget and a quarter of a tick.
    ///
    /// # Errors
    ///
    /// If the report is not valid, or a shard did not reply in time, or with something else.
    ///
    /// # Cancellation
    ///
    /// The calls continue in tasks of their own, so that a connection is judged by a whole budget.
    pub(super) async fn report(self: Arc<Self>, report: Report) -> Result<Totals, Error> {
        let parts = ShardReport::all(&self.prefix, &report)?;
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        let timeout = Timeout::by(self.budget, Deadline::after(report.tick / 4));
        self.servers.find(timeout).await;
        let first = parts.first().map_or(0, |part| self.servers.slot_of(part.key()));
        let calling: Vec<JoinHandle<_>> =
            parts.into_iter().map(|part| runtime.spawn(Arc::clone(&self).call_shard(part, first))).collect();
        let mut shards = Vec::with_capacity(calling.len());
        for task in calling {
            let called = timeout_at(timeout.until, task).await.map_err(|_| timeout.error())?;
            shards.push(called.unwrap_or_else(|error| Err(stopped(error)))?);
        }
        Ok(joined(shards, report.counters.len()))
    }

    /// Makes the call for a shard, within the budget. `first` is the slot of the first shard.
    async fn call_shard(self: Arc<Self>, part: ShardReport, first: u16) -> Result<ShardTotals, Error> {
        let slot = self.servers.slot_of(part.key());
        // The number of a tick is that of the first shard's server. Another one, whose clock differs, might take the
        // current tick for the last, and be read before all have reported.
        let part = if self.servers.is_same(first, slot) { part } else { part.without_target() };
        let (program, call) = part.command(self.servers.calls());
        let timeout = Timeout::new(self.budget);
        let called = self.servers.call(slot, timeout, async |connection| {
            match connections::call(program, connection, &call, Way::Plain).await? {
                Value::BulkString(reply) => part.read(reply.into()).ok_or_else(something_else),
                _ => Err(something_else()),
            }
        });
        called.await
    }
}

/// Returns the totals of a report of so many counters: at the time of the first shard, and of as many live processes
/// as the fewest of a shard, so that one that has lost its data does not seem to be offered nothing.
fn joined(shards: Vec<ShardTotals>, counters: usize) -> Totals {
    let now = Duration::from_micros(shards.first().map_or(0, |first| first.now_us));
    let live = shards.iter().map(|shard| shard.live).min().unwrap_or_default();
    let (mut totals, mut hot) = (vec![None; counters], Vec::new());
    for shard in shards {
        for (place, units) in shard.counters {
            totals[place] = units;
        }
        hot.extend(shard.hot);
    }
    Totals::new(now, live).counters(totals).hot(hot)
}

/// Returns the error of a reply that is none to a report. It ends the connection, whose next reply may be to an earlier
/// call.
#[cold]
fn something_else() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "the reply to a report was something else").into()
}

/// Returns the error of a task that ended before its call.
fn stopped(error: tokio::task::JoinError) -> Error {
    Error::new(Kind::Store, "reporting was stopped").with_source(error)
}
