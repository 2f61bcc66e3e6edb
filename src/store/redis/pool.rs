//! Pools, each of connections to one server.

use std::time::Duration;

use deadpool_redis::redis::{AsyncConnectionConfig, ConnectionInfo};
use deadpool_redis::{Manager, Pool, Runtime};

use crate::Error;

/// How pools are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pools {
    pub(super) size: usize,
    pub(super) connect_timeout: Duration,
}

impl Pools {
    /// A pool of connections to the server at one address.
    pub(super) fn of_server(self, server: ConnectionInfo) -> Result<Pool, Error> {
        // Every question has a timeout of its own.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(self.connect_timeout)).set_response_timeout(None);
        let manager = Manager::new_with_config(server, config).map_err(unusable)?;
        Pool::builder(manager)
            .max_size(self.checked_size()?)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(self.connect_timeout))
            .create_timeout(Some(self.connect_timeout))
            .recycle_timeout(Some(self.connect_timeout))
            .build()
            .map_err(unbuilt)
    }

    pub(super) fn checked_size(self) -> Result<usize, Error> {
        if self.size == 0 {
            return Err(Error::invalid("a pool of size 0 never gives a connection: give at least 1"));
        }
        Ok(self.size)
    }
}

pub(super) fn unusable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("these connection settings cannot be used").with_source(error)
}

pub(super) fn unbuilt(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("the connection pool cannot be built").with_source(error)
}
