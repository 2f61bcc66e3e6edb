//! The primary that sentinels name.
//!
//! URLs of sentinels and the name of a primary come in; connections to the server that is the
//! primary at the time go out. Nothing is cached but which sentinel named it last: each new
//! connection follows the sentinels anew. So a failover is followed as soon as the connection to
//! the old primary is given up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Value, cmd};
use tokio::time::timeout;

use super::failure::not_connected;
use super::link::Opened;
use super::server::Server;
use crate::core::Error;
use crate::core::error::Kind;

/// Sentinels, and the name by which they know the primary.
#[derive(Debug)]
pub(in crate::store::redis) struct Sentinels {
    /// The sentinels, in the order of their URLs. There is at least one.
    known: Vec<Server>,
    /// The name of the primary, as in `sentinel monitor`.
    name: String,
    /// How the primary is connected to; its address is replaced by the one that a sentinel names.
    primary: Server,
    /// How long a sentinel may take to name the primary, and then the primary to confirm that it is
    /// one.
    timeout: Duration,
    /// The place of the sentinel that is called first: the one that named the primary last.
    first: AtomicUsize,
}

impl Sentinels {
    /// Returns the connector. Nothing is connected yet.
    pub(in crate::store::redis) fn new(sentinels: Vec<Server>, name: &str, primary: Server, timeout: Duration) -> Self {
        Self { known: sentinels, name: name.to_owned(), primary, timeout, first: AtomicUsize::new(0) }
    }

    /// Calls one sentinel after the other, in a circle from the last successful one, until one
    /// names a server whose role is primary. Each is called once.
    ///
    /// # Errors
    ///
    /// The error of the last one, if none does.
    pub(super) async fn find(&self) -> Result<Opened, Error> {
        let (count, first) = (self.known.len(), self.first.load(Ordering::Relaxed));
        let mut failure = not_connected("there is no sentinel to call");
        for place in (0..count).map(|step| (first + step) % count) {
            match self.named_by(&self.known[place]).await {
                Ok(link) => {
                    self.first.store(place, Ordering::Relaxed);
                    return Ok(link);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Connects to the primary that one sentinel names.
    async fn named_by(&self, sentinel: &Server) -> Result<Opened, Error> {
        let (host, port) = self.in_time("the sentinel", self.primary_address(sentinel)).await?;
        self.in_time("the primary", self.open_primary(self.primary.moved_to(host, port))).await
    }

    /// Bounds one step by the timeout; `who` is named in the error.
    async fn in_time<T>(&self, who: &str, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let late = |late| {
            let text = format!("{who} did not reply within {:?}", self.timeout);
            Error::new(Kind::Timeout, text).with_source(late)
        };
        timeout(self.timeout, step).await.map_err(late)?
    }

    /// Returns the host and the port that a sentinel names, by `SENTINEL GET-MASTER-ADDR-BY-NAME`.
    async fn primary_address(&self, sentinel: &Server) -> Result<(String, u16), Error> {
        let mut link = sentinel.open().await?;
        let (mut connection, mut command) = (link.connection.clone(), cmd("SENTINEL"));
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let named: Option<(String, u16)> =
            link.drive(command.query_async(&mut connection)).await.map_err(not_connected)?;
        let unknown = || format!("the sentinel at {} knows no primary by the name {:?}", sentinel.address, self.name);
        named.ok_or_else(|| not_connected(unknown()))
    }

    /// Connects to the server that a sentinel named, if `ROLE` returns that it is a primary: after a
    /// failover a sentinel may still name the old one, which is a replica by then.
    async fn open_primary(&self, primary: Server) -> Result<Opened, Error> {
        let mut link = primary.open().await?;
        let mut connection = link.connection.clone();
        let role: Vec<Value> = link.drive(cmd("ROLE").query_async(&mut connection)).await.map_err(not_connected)?;
        match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(link),
            _ => Err(not_connected(format!("{} was named as the primary, but is not one", primary.address))),
        }
    }
}
