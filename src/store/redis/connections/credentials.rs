//! Who a connection logs in as.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use deadpool_redis::redis::RedisConnectionInfo;

use super::own_task::OwnTasks;
use crate::Error;
use crate::core::error::Kind;
use crate::store::redis::RedisStoreBuilder;

/// A user of Redis and a password: see [`RedisStoreBuilder::credentials`].
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

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").finish_non_exhaustive()
    }
}

impl RedisStoreBuilder {
    /// Asks for user and password before each new connection, for credentials that expire: tokens of a
    /// cloud provider, passwords that are rotated.
    ///
    /// They replace those of the URL, on all nodes of a Cluster, and on the primary that sentinels name;
    /// the sentinels themselves are logged in to as their URLs say. A connection that is there stays
    /// logged in; when the server closes it, the next one logs in with what the closure returns then. The
    /// connections to several nodes ask at once, so keep a token that several are to have. What it takes to
    /// return counts as connecting ([`connect_timeout`](Self::connect_timeout)), and its error is one of
    /// the connection.
    ///
    /// The closure runs in a task of its own on the runtime that connects. If it panics, that attempt fails with an
    /// error of the connection, and the next one calls it again. If it blocks its thread, decisions still end within
    /// their budget as long as the runtime has another thread. Of those that
    /// were called and have not awaited anything yet, by this closure and by that for dialing, half of the runtime's threads
    /// are kept at most, and at least one; further calls wait for them, as long as connecting may take.
    ///
    /// # Cancellation
    ///
    /// When connecting times out, the task is aborted: the closure's future is dropped where it awaits something.
    /// Callers that give up before do not end it, as others may wait for the same connection.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// use tollgate::{RedisStore, store::Credentials};
    ///
    /// let settings = RedisStore::builder().credentials(|| async {
    ///     let token = tokio::fs::read_to_string("/run/secrets/redis-token").await?;
    ///     Ok::<_, std::io::Error>(Credentials::new("limiter", token.trim_end()))
    /// });
    /// let store = settings.connect("redis://127.0.0.1:6379").await?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, T, E>(mut self, credentials: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let fetch = move || -> Fetching {
            let fetching = credentials();
            Box::pin(async move { fetching.await.map_err(Into::into) })
        };
        self.credentials = Some(Provider { fetch: Arc::new(fetch), tasks: self.own_tasks.clone() });
        self
    }
}

/// A user, a password and a database.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Login {
    info: RedisConnectionInfo,
    provider: Option<Provider>,
}

impl Login {
    /// A login as it is, or with what the provider says at the time.
    pub(in crate::store::redis) fn new(info: RedisConnectionInfo, provider: Option<Provider>) -> Self {
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
