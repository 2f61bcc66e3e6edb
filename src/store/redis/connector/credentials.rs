//! Who a connection logs in as.

use deadpool_redis::redis::RedisConnectionInfo;

use crate::Error;

/// A user, a password and a database.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Login {
    info: RedisConnectionInfo,
}

impl Login {
    pub(in crate::store::redis) fn new(info: RedisConnectionInfo) -> Self {
        Self { info }
    }

    /// What the next connection logs in with.
    #[allow(clippy::unused_async, reason = "credentials may have to be fetched")]
    pub(super) async fn next(&self) -> Result<RedisConnectionInfo, Error> {
        Ok(self.info.clone())
    }
}
