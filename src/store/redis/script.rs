//! The scripts, and how they are called.

use std::sync::OnceLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value, cmd};

use super::source::script;
use super::wire::{ALGORITHMS, Algorithms};

const DECIDE: &str = include_str!("../../../lua/decide.lua");
const ADJUST: &str = include_str!("../../../lua/adjust.lua");

/// A script and the hash it is called by.
#[derive(Debug)]
pub(super) struct Program {
    source: String,
    hash: String,
}

/// As many as there are sets of algorithms.
type Programs = [OnceLock<Program>; 1 << ALGORITHMS.len()];

impl Program {
    /// The script that decides a batch of requests with these algorithms.
    pub(super) fn decide(algorithms: Algorithms) -> &'static Self {
        static PROGRAMS: Programs = [const { OnceLock::new() }; 1 << ALGORITHMS.len()];
        let program = &PROGRAMS[algorithms.set()];
        program.get_or_init(|| Self::new(DECIDE, "decide", "ALGORITHMS", &algorithms.table("ALGORITHMS", "")))
    }

    /// The script that changes counters of these algorithms after the fact.
    pub(super) fn adjust(algorithms: Algorithms) -> &'static Self {
        static PROGRAMS: Programs = [const { OnceLock::new() }; 1 << ALGORITHMS.len()];
        let program = &PROGRAMS[algorithms.set()];
        program.get_or_init(|| Self::new(ADJUST, "adjust", "ADJUSTMENTS", &algorithms.table("ADJUSTMENTS", "_adjust")))
    }

    fn new(entry: &str, function: &str, table: &str, algorithms: &str) -> Self {
        let source = script(entry, function, table, algorithms);
        let hash = Script::new(&source).get_hash().to_owned();
        Self { source, hash }
    }

    /// Loads the script into the server.
    pub(super) async fn load(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        cmd("SCRIPT").arg("LOAD").arg(&self.source).query_async(connection).await
    }

    /// Calls the script, loading it if the server does not have it: then it did not run.
    pub(super) async fn call(
        &self,
        connection: &mut MultiplexedConnection,
        keys: &[String],
        now: &str,
        packed: &[u8],
    ) -> Result<Value, RedisError> {
        let call = self.command(keys, now, packed);
        match call.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.load(connection).await?;
                call.query_async(connection).await
            }
            answer => answer,
        }
    }

    fn command(&self, keys: &[String], now: &str, packed: &[u8]) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.hash).arg(keys.len()).arg(keys).arg(now).arg(packed);
        call
    }
}
