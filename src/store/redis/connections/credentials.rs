//! Who a connection logs in as.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use deadpool_redis::redis::RedisConnectionInfo;

use super::own_task::OwnTasks;
use crate::core::Error;
use crate::core::error::Kind;

/// A user of Redis and a password: see
/// [`RedisStoreBuilder::credentials`](crate::store::RedisStoreBuilder::credentials).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: String,
    password: String,
}

impl Credentials {
    /// The credentials of a user; Redis calls the one that needs no name `default`.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

type Fetching = Pin<Box<dyn Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send>>;

/// Where credentials come from that do not stay the same.
#[derive(Clone)]
pub(in crate::store::redis) struct Provider {
    fetch: Arc<dyn Fn() -> Fetching + Send + Sync>,
    tasks: OwnTasks,
}

impl Provider {
    /// Credentials that a closure returns, in tasks of its own.
    pub(in crate::store::redis) fn new<F, T, E>(credentials: F, tasks: OwnTasks) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let fetch = move || -> Fetching {
            let fetching = credentials();
            Box::pin(async move { fetching.await.map_err(Into::into) })
        };
        Self { fetch: Arc::new(fetch), tasks }
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").finish_non_exhaustive()
    }
}

/// A user, a password and a database.
#[derive(Clone, Debug)]
pub(super) struct Login {
    info: RedisConnectionInfo,
    provider: Option<Provider>,
}

impl Login {
    /// A login as it is, or with what the provider says at the time.
    pub(super) fn new(info: RedisConnectionInfo, provider: Option<Provider>) -> Self {
        Self { info, provider }
    }

    /// What the next connection logs in with.
    pub(super) async fn next(&self) -> Result<RedisConnectionInfo, Error> {
        let Some(Provider { fetch, tasks }) = self.provider.clone() else { return Ok(self.info.clone()) };
        let none = || Error::new(Kind::Connection, "there are no credentials for Redis");
        let asked = tasks.run(move || fetch()).await;
        let Credentials { user, password } =
            asked.map_err(|error| none().with_source(error))?.map_err(|error| none().with_source(error))?;
        Ok(self.info.clone().set_username(user).set_password(password))
    }
}
