//! The primary that sentinels name.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_redis::redis::{Value, cmd};
use tokio::time::timeout;

use super::link::{Connecting, Connector, Link, not_connected};
use super::server::Server;
use crate::core::Error;
use crate::core::error::Kind;

/// Sentinels, and the primary they know by a name.
#[derive(Debug)]
pub(in crate::store::redis) struct Sentinels {
    known: Vec<Server>,
    name: String,
    /// How it is connected to, but for the address.
    primary: Server,
    /// How long a sentinel, or the primary it names, may take.
    timeout: Duration,
    /// Who is asked first: whoever named the primary last.
    first: AtomicUsize,
}

impl Sentinels {
    pub(in crate::store::redis) fn new(sentinels: Vec<Server>, name: &str, primary: Server, timeout: Duration) -> Self {
        Self { known: sentinels, name: name.to_owned(), primary, timeout, first: AtomicUsize::new(0) }
    }

    /// Asks one sentinel after the other, until one names a server that says it is a primary.
    async fn find(&self) -> Result<Link, Error> {
        let (count, first) = (self.known.len(), self.first.load(Ordering::Relaxed));
        let mut failure = not_connected("there is no sentinel to ask");
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

    async fn named_by(&self, sentinel: &Server) -> Result<Link, Error> {
        let (host, port) = self.in_time("the sentinel", self.ask(sentinel)).await?;
        self.in_time("the primary", self.open_primary(self.primary.moved_to(host, port))).await
    }

    async fn in_time<T>(&self, who: &str, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let late = |late| {
            let text = format!("{who} did not answer in {:?}", self.timeout);
            Error::new(Kind::Timeout, text).with_source(late)
        };
        timeout(self.timeout, step).await.map_err(late)?
    }

    async fn ask(&self, sentinel: &Server) -> Result<(String, u16), Error> {
        let mut link = sentinel.open().await?;
        let (mut connection, mut question) = (link.connection.clone(), cmd("SENTINEL"));
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let named: Option<(String, u16)> =
            link.drive(question.query_async(&mut connection)).await.map_err(not_connected)?;
        let unknown = || format!("the sentinel at {} knows no primary by the name {:?}", sentinel.address, self.name);
        named.ok_or_else(|| not_connected(unknown()))
    }

    async fn open_primary(&self, primary: Server) -> Result<Link, Error> {
        let mut link = primary.open().await?;
        let mut connection = link.connection.clone();
        let role: Vec<Value> = link.drive(cmd("ROLE").query_async(&mut connection)).await.map_err(not_connected)?;
        match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(link),
            _ => Err(not_connected(format!("{} is named as the primary, and says it is none", primary.address))),
        }
    }
}

impl Connector for Sentinels {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(self.find())
    }
}
