//! Loading scripts and libraries into a server, and calling them.
//!
//! A program and its call come in; the bytes that the script returned go out. A call by hash or
//! name that the server does not have did not run, so it is safe to load the program and to call
//! again: this is the only case in which a call is sent twice here. Servers lose scripts by `SCRIPT
//! FLUSH`, by a restart, and by a failover to a replica that never had them.

use deadpool_redis::redis::aio::MultiplexedConnection;
use deadpool_redis::redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value, pipe};

use crate::store::redis::wire::{Program, Way};

/// How often a program is loaded for one call: the server may be flushed again in between.
pub(super) const MOST_LOADS: usize = 3;

/// Calls a program, loading it if the server does not have it: then it did not run.
///
/// # Errors
///
/// As the server refuses the call or the connection fails; and `UnexpectedReturnType` if the reply
/// is no string of bytes, which ends the connection.
///
/// # Cancellation
///
/// The call may have been sent, and have run.
pub(in crate::store::redis) async fn call(
    program: &Program,
    connection: &mut MultiplexedConnection,
    call: &Cmd,
    way: Way,
) -> Result<Value, RedisError> {
    let (mut reply, mut loads) = (send(connection, call, way).await, 0);
    while loads < MOST_LOADS && reply.as_ref().is_err_and(is_missing) {
        loads += 1;
        // Boxed, as it is rare.
        reply = Box::pin(load_and_send(program, connection, call, way)).await;
    }
    match reply? {
        reply @ Value::BulkString(_) => Ok(reply),
        _ => Err((ErrorKind::UnexpectedReturnType, "the reply to a decision was something else").into()),
    }
}

/// Loads a program, and calls it.
async fn load_and_send(
    program: &Program,
    connection: &mut MultiplexedConnection,
    call: &Cmd,
    way: Way,
) -> Result<Value, RedisError> {
    load(program, connection).await?;
    send(connection, call, way).await
}

/// Sends a call, in the given way.
async fn send(connection: &mut MultiplexedConnection, call: &Cmd, way: Way) -> Result<Value, RedisError> {
    match way {
        Way::Plain => call.query_async(connection).await,
        #[cfg(feature = "cluster")]
        // Boxed, as it is rare.
        Way::Asking => Box::pin(call_asking(connection, call)).await,
    }
}

/// Sends a call behind `ASKING`, and returns the reply to the call.
#[cfg(feature = "cluster")]
async fn call_asking(connection: &mut MultiplexedConnection, call: &Cmd) -> Result<Value, RedisError> {
    // Sent as one, for `ASKING` is about the next command.
    let mut both = pipe();
    both.cmd("ASKING").add_command(call.clone());
    let replies = connection.send_packed_commands(&both, 1, 1).await?;
    replies.into_iter().next().unwrap_or(Value::Nil).extract_error()
}

/// Loads a program into the server. A library that is there already is the same, as it is named by
/// its content: that is no error.
pub(in crate::store::redis) async fn load(
    program: &Program,
    connection: &mut MultiplexedConnection,
) -> Result<(), RedisError> {
    match program.load_command().query_async(connection).await {
        Err(error) if is_there(&error) => Ok(()),
        loaded => loaded,
    }
}

/// Loads several scripts in one round trip.
///
/// # Errors
///
/// The first error, if the server refuses one.
pub(in crate::store::redis) async fn load_all(
    scripts: impl Iterator<Item = &Program>,
    connection: &mut MultiplexedConnection,
) -> Result<(), RedisError> {
    let mut all = pipe();
    let mut count = 0;
    for script in scripts {
        all.add_command(script.load_command());
        count += 1;
    }
    last_of(connection.send_packed_commands(&all, 0, count).await?).map(drop)
}

/// Loads a library and calls its check, in one round trip. Another process may have loaded it in
/// between, which is no error.
pub(super) async fn load_and_check(
    library: &Program,
    connection: &mut MultiplexedConnection,
) -> Result<Value, RedisError> {
    let mut both = pipe();
    both.add_command(library.load_command()).add_command(library.check_command());
    let mut replies = connection.send_packed_commands(&both, 0, 2).await?;
    // Another process may have loaded it meanwhile.
    if replies.first().is_some_and(|loaded| matches!(loaded.clone().extract_error(), Err(error) if is_there(&error))) {
        replies.remove(0);
    }
    last_of(replies)
}

/// Returns the last of several replies, or the first error.
pub(super) fn last_of(replies: Vec<Value>) -> Result<Value, RedisError> {
    replies.into_iter().try_fold(Value::Nil, |_, reply| reply.extract_error())
}

/// Returns whether a library was not loaded because it is there already.
fn is_there(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("already exists"))
}

/// Returns whether the server does not have the script or the function that was called.
pub(super) fn is_missing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
        || error.detail().is_some_and(|detail| detail.starts_with("Function not found"))
}
