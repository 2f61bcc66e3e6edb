//! Redis as a tally.
//!
//! A report is one call for each shard, all at the same time. If one call fails, so does the report. The units that
//! other calls added stay.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;
use tollgate::deadpool_redis::redis::{RedisError, Script, ServerErrorKind, Value};
use tollgate::{Error, RedisStore};

use crate::tally::{Report, Tally, Totals};
use crate::wire::{ShardReport, ShardTotals};

const SOURCE: &str = include_str!("../lua/ratio.lua");

/// Reports stay in Redis for four ticks by its clock, even if the store has another
/// [clock](tollgate::store::RedisStoreBuilder::clock). A report has the store's timeout, and at most a quarter of a
/// tick. It is a script even if the store calls functions, and its user also needs
/// `+eval +evalsha +hmget +hset +hincrby +hlen +pexpire`. A dropped report may have been added.
impl Tally for RedisStore {
    fn report(&self, report: Report) -> Pin<Box<dyn Future<Output = Result<Totals, Error>> + Send + '_>> {
        Box::pin(self::report(self, report))
    }
}

async fn report(store: &RedisStore, report: Report) -> Result<Totals, Error> {
    let parts = ShardReport::all(store.prefix(), &report)?;
    let stopped = |text: &str| Error::store("a report to Redis was not made", text);
    let runtime = Handle::try_current().map_err(|_| stopped("there is no tokio runtime"))?;
    let within = report.tick / 4;
    let call = |(shard, part): (usize, ShardReport)| {
        // The server of the first shard sets the number of the tick. Another server, whose clock differs, might take
        // the current tick for the last one, which would be read before all processes have reported.
        let part = if shard == 0 { part } else { part.without_target() };
        let (store, late) = (store.clone(), format!("Redis did not reply to a report within {within:?}"));
        runtime.spawn(async move {
            timeout(within, call_shard(&store, &part)).await.unwrap_or_else(|_| Err(Error::timeout(late)))
        })
    };
    let calling: Vec<_> = parts.into_iter().enumerate().map(call).collect();
    let mut shards = Vec::with_capacity(calling.len());
    for task in calling {
        shards.push(task.await.unwrap_or_else(|_| Err(stopped("its runtime has ended")))?);
    }
    Ok(joined(shards, report.counters.len()))
}

async fn call_shard(store: &RedisStore, part: &ShardReport) -> Result<ShardTotals, Error> {
    static HASH: LazyLock<String> = LazyLock::new(|| Script::new(SOURCE).get_hash().to_owned());
    let is_text = |reply: &Value| matches!(reply, Value::BulkString(_));
    let mut reply = store.command_checked(&part.command("EVALSHA", &HASH), is_text).await;
    if reply.as_ref().is_err_and(lacks_script) {
        reply = store.command_checked(&part.command("EVAL", SOURCE), is_text).await;
    }
    let totals = match reply? {
        Value::BulkString(reply) => part.read(reply.into()),
        _ => None,
    };
    totals.ok_or_else(|| {
        Error::store("Redis replied to a report with something else", "it is not what the script returns")
    })
}

fn lacks_script(error: &Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<RedisError>());
    source.is_some_and(|error| error.kind() == ServerErrorKind::NoScript.into())
}

/// Combines the shards: the time of the first one, and the smallest number of live processes, so that a shard that lost
/// its data does not seem to be offered nothing.
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
