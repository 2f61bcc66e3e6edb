//! Whether a server counts as Redis does.
//!
//! A new connection comes in; nothing, or the reason why the server must not be used, goes out.
//! Some servers speak the protocol of Redis and run scripts, but their Lua differs in how it packs
//! or calculates numbers: every decision would succeed there, and counts would be wrong. So each
//! new connection of a store that calls Lua first calls `lua/check.lua`, whose result is the same
//! on every server where counts are right.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{InfoDict, RedisError, Value, cmd, pipe};

use super::failure::{failed, is_missing};
use super::link::Opened;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::redis::wire::{CHECK, Calls, Program};

/// How often a library is loaded: the server may be flushed in between.
const MOST_LOADS: usize = 3;

/// Calls `lua/check.lua` on a connection, in the way in which decisions will be called for.
///
/// Microsoft Garnet, for one, packs `>I7` into 4 bytes: scripts run there, and count wrong.
///
/// # Errors
///
/// If the server returns something else, refuses the call, has no functions though they are to be
/// used, or the connection is lost.
pub(super) async fn check(opened: &mut Opened, calls: Calls) -> Result<(), Error> {
    let mut connection = opened.connection.clone();
    let checked = async {
        let found = match calls {
            Calls::Scripts => by_script(&mut connection).await,
            Calls::Functions => by_function(&mut connection).await,
        };
        Ok(match found {
            Err(error) if calls == Calls::Functions => Err(no_functions(&mut connection, error).await),
            found => found.map_err(|error| failed(&error)),
        })
    };
    match opened.drive(checked).await.map_err(|error| failed(&error))?? {
        Some(Value::BulkString(bytes)) if bytes == expected() => Ok(()),
        None => Ok(()),
        Some(found) => Err(no_redis(&found)),
    }
}

/// Calls the check as a script.
async fn by_script(connection: &mut MultiplexedConnection) -> Result<Option<Value>, RedisError> {
    let script = format!("{CHECK}\nreturn check()\n");
    cmd("EVAL").arg(script).arg(0).query_async(connection).await.map(Some)
}

/// Calls the check of the library, which is loaded if it is missing. Returns `None` for a replica
/// that does not have it yet: it decides nothing.
async fn by_function(connection: &mut MultiplexedConnection) -> Result<Option<Value>, RedisError> {
    let library = Program::library();
    let (mut checked, mut loads) = (library.check_command().query_async(connection).await, 0);
    while loads < MOST_LOADS && checked.as_ref().is_err_and(is_missing) {
        loads += 1;
        checked = load_and_check(library, connection).await;
    }
    match checked {
        Err(error) if error.code() == Some("READONLY") => Ok(None),
        checked => checked.map(Some),
    }
}

/// Loads a library and calls its check, in one round trip.
async fn load_and_check(library: &Program, connection: &mut MultiplexedConnection) -> Result<Value, RedisError> {
    let mut both = pipe();
    if let Some(load) = Program::load_command(Calls::Functions) {
        both.add_command(load);
    }
    both.add_command(library.check_command());
    let mut replies = connection.send_packed_commands(&both, 0, 2).await?.into_iter();
    match replies.next().map(Value::extract_error) {
        // Another process may have loaded it meanwhile: it is the same, as it is named by its content.
        Some(Err(error)) if !error.detail().is_some_and(|detail| detail.contains("already exists")) => Err(error),
        _ => replies.next().unwrap_or(Value::Nil).extract_error(),
    }
}

/// Returns what `lua/check.lua` returns on every Redis and Valkey: numbers of each width that
/// states and replies have, the results of some arithmetic, and where unpacking ended.
fn expected() -> Vec<u8> {
    let (most, time, low) = ((1_u64 << 52) - 1, (1_u64 << 44) - 1, (1_u64 << 32) - 1);
    let numbers = [(3, 1), (255, 1), (most, 7), (time, 6), (low, 4)];
    let worked_out = [(most - most % 1_000_003, 7), (time / 7, 6), (12_000_000 + low, 7), (20, 1)];
    let bytes = |(number, width): (u64, usize)| number.to_be_bytes().into_iter().skip(8 - width);
    numbers.into_iter().chain(worked_out).flat_map(bytes).collect()
}

/// Returns the error of a server whose Lua differs.
fn no_redis(found: &Value) -> Error {
    let found = match found {
        Value::BulkString(bytes) => format!("{} bytes that differ", bytes.len()),
        other => format!("{other:?}"),
    };
    let text = "this server is no Redis: its Lua works with numbers in another way (struct.pack, unpack or arithmetic), \
                so that counts would be wrong; take Redis or Valkey";
    Error::new(Kind::Store, text).with_source(format!("lua/check.lua returned {found}"))
}

/// Returns why a library could not be loaded or called: mostly because the server is too old to
/// have functions, in which case the error has its version.
async fn no_functions(connection: &mut MultiplexedConnection, error: RedisError) -> Error {
    if !error.detail().is_some_and(|detail| detail.contains("unknown command")) {
        return failed(&error);
    }
    let info: Result<InfoDict, _> = cmd("INFO").arg("server").query_async(connection).await;
    let version = info.ok().and_then(|info| info.get("redis_version")).unwrap_or_else(|| "unknown".to_owned());
    let text = format!("this server, version {version}, has no functions: it takes Redis 7 or Valkey, or scripts");
    Error::new(Kind::Store, text).with_source(error)
}
