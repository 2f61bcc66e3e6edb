//! Making a server ready: loading what is called there.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{InfoDict, RedisError, cmd};

use super::connection::Connections;
use super::needs::Needs;
use super::patience::failed;
use super::script::{Calls, Program};
use crate::Error;
use crate::error::Kind;

impl Connections {
    /// Connects and loads what is called: the library, or the scripts for each algorithm alone; those
    /// for more are loaded when they are first called.
    pub(super) async fn prepare(&self, calls: Calls) -> Result<(), Error> {
        let connection = &mut self.get().await?.connection;
        match calls {
            Calls::Scripts => {
                for needs in Needs::each() {
                    let program = Program::of(calls, needs);
                    program.load(connection).await.map_err(|error| failed(&error))?;
                }
            }
            Calls::Functions => {
                if let Err(error) = Program::of(calls, Needs::all()).load(connection).await {
                    return Err(no_functions(connection, error).await);
                }
            }
        }
        Ok(())
    }
}

/// Why a library could not be loaded: mostly because the server is too old to have functions.
async fn no_functions(connection: &mut MultiplexedConnection, error: RedisError) -> Error {
    if !error.detail().is_some_and(|detail| detail.contains("unknown command")) {
        return failed(&error);
    }
    let info: Result<InfoDict, _> = cmd("INFO").arg("server").query_async(connection).await;
    let version = info.ok().and_then(|info| info.get("redis_version")).unwrap_or_else(|| "unknown".to_owned());
    let text = format!("this server, version {version}, has no functions: it takes Redis 7 or Valkey, or scripts");
    Error::new(Kind::Store, text).with_source(error)
}
