//! Reports to a tally: what one process was offered goes in, and the totals of all come out.
//!
//! A report is one command for each shard, all at the same time. If one fails, so does the report; what the others added
//! stays.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::Value;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::connections::is_missing;
use super::engine::Engine;
use super::pipeline::{no_runtime, stopped};
use super::wire::{Program, ShardReport, ShardTotals, no_decision};
use crate::core::Error;
use crate::store::Deadline;
use crate::store::ratio::{Report, Totals};

impl Engine {
    /// Adds a report to its tick and returns the totals of the last one, within the timeout and a quarter of a tick.
    ///
    /// # Errors
    ///
    /// If the report is not valid, or a shard did not reply in time, or with something else.
    ///
    /// # Cancellation
    ///
    /// The calls continue in tasks of their own.
    pub(super) async fn report(self: Arc<Self>, report: Report) -> Result<Totals, Error> {
        let parts = ShardReport::all(&self.prefix, &report)?;
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        let within = Deadline::after(report.tick / 4);
        let first = parts.first().map_or(0, |part| self.servers.slot_of(part.key()));
        let calling: Vec<JoinHandle<_>> =
            parts.into_iter().map(|part| runtime.spawn(Arc::clone(&self).call_shard(part, first, within))).collect();
        let mut shards = Vec::with_capacity(calling.len());
        for task in calling {
            shards.push(task.await.unwrap_or_else(|_| Err(stopped()))?);
        }
        Ok(joined(shards, report.counters.len()))
    }

    /// Makes the call for a shard. `first` is the slot of the first shard.
    async fn call_shard(
        self: Arc<Self>,
        part: ShardReport,
        first: u16,
        within: Deadline,
    ) -> Result<ShardTotals, Error> {
        let slot = self.servers.slot_of(part.key());
        // The number of a tick is that of the first shard's server. Another one, whose clock differs, might take the
        // current tick for the last, and be read before all have reported.
        let part = if self.servers.is_same(first, slot) { part } else { part.without_target() };
        let calls = self.servers.settings().calls.unwrap_or_default();
        let mut reply = self.command_for(slot, part.command(calls, false), within).await;
        if reply.as_ref().is_err_and(lacks_script) {
            if let Some(load) = Program::load_command(calls) {
                // It may be there by now; and otherwise the call says why not.
                let _ = self.command_for(slot, load, within).await;
            }
            reply = self.command_for(slot, part.command(calls, true), within).await;
        }
        match reply? {
            Value::BulkString(reply) => part.read(reply.into()).ok_or_else(no_decision),
            _ => Err(no_decision()),
        }
    }
}

/// Returns whether a command failed because the server does not have the script or the library.
fn lacks_script(error: &Error) -> bool {
    error.source().and_then(|source| source.downcast_ref()).is_some_and(is_missing)
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
