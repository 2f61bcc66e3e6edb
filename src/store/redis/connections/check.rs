//! The check that a server's Lua calculates like the Lua of Redis.
//!
//! Some servers speak the protocol of Redis and run scripts, but their Lua packs or calculates numbers in another way.
//! Every decision would succeed there, with wrong counts. So each new connection of a store that calls Lua first calls
//! `lua/check.lua`, whose result is the same on every server that counts correctly.

use deadpool_redis::redis::{InfoDict, RedisError, Value, cmd, from_redis_value, pipe};

use super::failure::{failed, is_missing};
use super::link::Link;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::redis::wire::{CHECK, Calls, Program};

/// Microsoft Garnet, for example, packs `>I7` into 4 bytes: scripts run there, but count wrong.
pub(super) async fn check(link: &mut Link, calls: Calls, prefix: &str) -> Result<(), Error> {
    let found = match calls {
        Calls::Scripts => by_script(link, prefix).await.map_err(|error| failed(&error))?,
        Calls::Functions => match by_function(link).await {
            // A replica that lacks the library decides nothing.
            Err(error) if error.code() == Some("READONLY") => return Ok(()),
            Err(error) => return Err(no_functions(link, error).await),
            Ok(found) => found,
        },
    };
    match found {
        Value::BulkString(bytes) if bytes == expected() => Ok(()),
        found => Err(no_redis(&found)),
    }
}

async fn by_script(link: &mut Link, prefix: &str) -> Result<Value, RedisError> {
    let script = format!("{CHECK}\nreturn check()\n");
    match link.ask(cmd("EVAL").arg(&script).arg(0)).await {
        // ElastiCache Serverless runs no script without a key. Elsewhere on a Cluster, the key may be another node's.
        Err(error) if error.detail().is_some_and(|detail| detail.contains("without any input keys")) => {
            link.ask(cmd("EVAL").arg(&script).arg(1).arg(format!("{prefix}:check"))).await
        }
        reply => reply,
    }
}

/// More than one, because the server may be flushed after a load.
const MAX_LOADS: usize = 3;

async fn by_function(link: &mut Link) -> Result<Value, RedisError> {
    let library = Program::library();
    let mut checked = link.ask(&library.check_command()).await;
    for _ in 0..MAX_LOADS {
        if !checked.as_ref().is_err_and(is_missing) {
            break;
        }
        checked = load_and_check(library, link).await;
    }
    checked
}

async fn load_and_check(library: &Program, link: &mut Link) -> Result<Value, RedisError> {
    let mut both = pipe();
    if let Some(load) = Program::load_command(Calls::Functions) {
        both.add_command(load);
    }
    both.add_command(library.check_command());
    let mut replies = link.call(&both).await?.into_iter().map(Value::extract_error);
    match replies.next() {
        // Another process may have loaded it first. It is the same library because its name is a hash of its content.
        Some(Err(error)) if !error.detail().is_some_and(|detail| detail.contains("already exists")) => Err(error),
        _ => replies.next().unwrap_or(Ok(Value::Nil)),
    }
}

/// Numbers of each width in states and replies, results of arithmetic, and the end of unpacking.
fn expected() -> Vec<u8> {
    let (most, time, low) = ((1_u64 << 52) - 1, (1_u64 << 44) - 1, (1_u64 << 32) - 1);
    let numbers = [(3, 1), (255, 1), (most, 7), (time, 6), (low, 4)];
    let worked_out = [(most - most % 1_000_003, 7), (time / 7, 6), (12_000_000 + low, 7), (20, 1)];
    let bytes = |(number, width): (u64, usize)| number.to_be_bytes().into_iter().skip(8 - width);
    numbers.into_iter().chain(worked_out).flat_map(bytes).collect()
}

fn no_redis(found: &Value) -> Error {
    let found = match found {
        Value::BulkString(bytes) => format!("{} bytes that differ", bytes.len()),
        other => format!("{other:?}"),
    };
    let text = "this server is no Redis: its Lua works with numbers in another way (struct.pack, unpack or arithmetic), \
                so that counts would be wrong; take Redis or Valkey";
    Error::new(Kind::Store, text).with_source(format!("lua/check.lua returned {found}"))
}

/// Usually the server is too old for functions. Then the error has its version.
async fn no_functions(link: &mut Link, error: RedisError) -> Error {
    if !error.detail().is_some_and(|detail| detail.contains("unknown command")) {
        return failed(&error);
    }
    let info = link.ask(cmd("INFO").arg("server")).await.ok().and_then(|info| from_redis_value::<InfoDict>(info).ok());
    let version = info.and_then(|info| info.get("redis_version")).unwrap_or_else(|| "unknown".to_owned());
    let text = format!("this server, version {version}, has no functions: it takes Redis 7 or Valkey, or scripts");
    Error::new(Kind::Store, text).with_source(error)
}
