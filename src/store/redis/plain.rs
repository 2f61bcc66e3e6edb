//! What a store that calls no Lua shares with this one: connections to one server, and the names of
//! its keys.
//!
//! Settings and a URL come in; calls of any command go out, over the same lanes, timeouts and
//! errors as the script's. The store on redis-cell (`store/cell/`) is the only user; of this folder
//! it otherwise uses only the public settings that both stores have. Calls share no batch here, as each is a command of
//! its own, and the server is not checked for its Lua.

use std::time::Duration;

use deadpool_redis::redis::RedisError;
use deadpool_redis::redis::aio::MultiplexedConnection;
use tokio::time::timeout_at;

use super::batch::{Lanes, Timeout};
use super::builder::{RedisStoreBuilder, in_time};
use super::connections::Failure;
use super::wire::cell_key;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::{Counter, Deadline};

/// One server that is sent plain commands.
pub(in crate::store) struct PlainServer {
    /// The connections, one for each runtime.
    lanes: Lanes,
    /// Where the server is, for errors.
    address: String,
    /// How long it may take until it is known to be usable.
    longest_start: Duration,
    /// What every key starts with.
    pub(in crate::store) prefix: String,
    /// How long one decision may take.
    pub(in crate::store) budget: Duration,
}

impl PlainServer {
    /// The server at a URL, which is not connected to yet.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is wrong.
    pub(in crate::store) fn new(settings: RedisStoreBuilder, url: &str) -> Result<Self, Error> {
        settings.check()?;
        let (lanes, address) = settings.server(url, None)?;
        let longest_start = settings.longest_start();
        Ok(Self { lanes, address, longest_start, prefix: settings.prefix, budget: settings.budget })
    }

    /// The name of the key that has a counter's state, as redis-cell keeps it.
    pub(in crate::store) fn key(&self, counter: &Counter) -> String {
        cell_key(&self.prefix, counter)
    }

    /// Connects, and makes the first call. `explain` receives a refusal and the server's address,
    /// and returns what is wrong with the server if it recognises the refusal.
    ///
    /// # Errors
    ///
    /// With the text of `explain`, or if the server cannot be reached, or does not reply within the
    /// time that connecting may take.
    pub(in crate::store) async fn try_out<T>(
        &self,
        call: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
        explain: impl FnOnce(&RedisError, &str) -> Option<String>,
    ) -> Result<T, Error> {
        let (limit, address) = (self.longest_start, &self.address);
        let timeout = Timeout::new(limit);
        let called = async {
            match self.lanes.call(timeout, call).await {
                Ok(reply) => Ok(Ok(reply)),
                Err(Failure::Error(error)) => match explain(&error, address) {
                    Some(text) => Ok(Err(Error::new(Kind::Store, text).with_source(error))),
                    None => Err(timeout.error_of(Failure::Error(error))),
                },
                Err(failure) => Err(timeout.error_of(failure)),
            }
        };
        in_time(limit, address, called).await?
    }

    /// Makes a call within the budget.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, no connection, or the server refuses the call.
    ///
    /// # Cancellation
    ///
    /// The call may have been sent.
    pub(in crate::store) async fn call<T>(
        &self,
        call: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Error> {
        let timeout = Timeout::new(self.budget);
        self.lanes.call(timeout, call).await.map_err(|failure| timeout.error_of(failure))
    }

    /// Waits until a deadline for a future that makes calls. One that is late continues in a task of
    /// its own: that its budget is over shows that the connection has failed, that a caller's
    /// deadline is over does not.
    ///
    /// # Errors
    ///
    /// Its own, or a timeout.
    pub(in crate::store) async fn wait<T: Send + 'static>(
        &self,
        deadline: Deadline,
        calling: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let timeout = Timeout::by(self.budget, deadline);
        if !timeout.is_cut_short() {
            return calling.await;
        }
        match timeout_at(timeout.until, tokio::spawn(calling)).await {
            Ok(result) => {
                result.unwrap_or_else(|error| Err(Error::new(Kind::Store, "deciding was stopped").with_source(error)))
            }
            Err(_) => Err(timeout.error()),
        }
    }
}
