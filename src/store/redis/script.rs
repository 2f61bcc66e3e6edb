//! The scripts, joined from `lua/` when the crate is compiled, and how they are called.

use std::sync::LazyLock;

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value, cmd};

/// Joins the algorithms, for which the order does not matter, between the prelude and an entry.
macro_rules! source {
    ($entry:literal, $call:literal) => {
        concat!(
            include_str!("../../../lua/prelude.lua"),
            include_str!("../../../lua/fixed_window.lua"),
            include_str!("../../../lua/token_bucket.lua"),
            include_str!("../../../lua/sliding_window.lua"),
            include_str!("../../../lua/sliding_log.lua"),
            include_str!("../../../lua/leaky_bucket.lua"),
            include_str!(concat!("../../../lua/", $entry)),
            "return ",
            $call,
            "(KEYS, ARGV)\n"
        )
    };
}

/// Decides a batch of requests.
pub(super) static DECIDE: LazyLock<Program> = LazyLock::new(|| Program::new(source!("decide.lua", "decide")));

/// Changes one counter after the fact.
pub(super) static ADJUST: LazyLock<Program> = LazyLock::new(|| Program::new(source!("adjust.lua", "adjust")));

/// A script and the hash it is called by.
#[derive(Debug)]
pub(super) struct Program {
    source: &'static str,
    hash: String,
}

impl Program {
    fn new(source: &'static str) -> Self {
        Self { source, hash: Script::new(source).get_hash().to_owned() }
    }

    /// Loads the script into the server.
    pub(super) async fn load(&self, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
        cmd("SCRIPT").arg("LOAD").arg(self.source).query_async(connection).await
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
