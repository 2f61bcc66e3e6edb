//! Logs on Redis: the server's own time, by the statistics of its commands.

use std::time::Duration;

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, Quota, RedisStore};

use super::{LIMITS, QUOTAS, sides};
use crate::effort::Effort;
use crate::growth::report::{Table, Unit};
use crate::growth::sides::name;
use crate::plain::keys;
use crate::server::{SCRIPTS, Server};
use crate::stores::store_without_deny_cache;

/// A whole number of milliseconds for a unit of any limit, and so long that none comes back on the server meanwhile.
const WINDOW: Duration = Duration::from_secs(100_000);

pub(in crate::growth) async fn run(Effort { rounds, calls, .. }: Effort, server: &Server) -> Table {
    let work = format!(
        "One unit of work is a check of one key on Redis, in a call of its own, under a limit of so many units: all \
         but one are taken before a check that is admitted, and all before one that is refused; the time is the \
         server's (medians of {rounds} rounds of {calls} checks, interleaved; each of a key of its own)."
    );
    let mut table = sides(Table::of("log_redis", "units", Unit::Microseconds, &LIMITS, work));
    let (keys, mut connection) = (keys("ip", calls), server.connection().await);
    let store = store_without_deny_cache(server).await;
    for _ in 0..rounds {
        for (row, limit) in LIMITS.into_iter().enumerate() {
            for (number, quota) in QUOTAS.into_iter().enumerate() {
                let checks = Checks { store: &store, keys: &keys, quota: quota(limit as u64, WINDOW) };
                let [admitted, refused] = checks.micros(server, &mut connection).await;
                table.note(2 * number, row, admitted);
                table.note(2 * number + 1, row, refused);
            }
        }
    }
    table
}

/// Checks of every key under one quota.
struct Checks<'a> {
    store: &'a RedisStore,
    keys: &'a [Key],
    quota: Quota,
}

impl Checks<'_> {
    /// Microseconds of the server for a check that takes the last unit, and for one that finds none.
    async fn micros(&self, server: &Server, connection: &mut MultiplexedConnection) -> [f64; 2] {
        self.each(self.quota.limit() - 1, true).await;
        let mut micros = [0.0; 2];
        for (micros, allowed) in micros.iter_mut().zip([true, false]) {
            server.reset_stats(connection).await;
            self.each(1, allowed).await;
            let (calls, all) = server.command_stats(connection, &SCRIPTS).await;
            assert!(calls.total_cmp(&(self.keys.len() as f64)).is_eq(), "a call for each check, not {calls}");
            *micros = all / calls;
        }
        server.flush(connection).await;
        micros
    }

    async fn each(&self, cost: u64, allowed: bool) {
        for key in self.keys {
            let check = Check::new(Counter::new(name("bench"), key.clone(), self.quota), cost);
            let decided = self.store.decide(&[check], Ask::default()).wait().await.expect("decided");
            assert_eq!(decided.decision.is_allowed(), allowed, "{:?}", decided.decision);
        }
    }
}
