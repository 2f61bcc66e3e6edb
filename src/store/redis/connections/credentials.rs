//! Who a connection logs in as.
//!
//! The user and password of a URL, or a closure that returns them, come in; for each new connection
//! a login goes out. Passwords are kept out of every `Debug` output of this crate.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use deadpool_redis::redis::RedisConnectionInfo;

use super::own_task::own_task;
use crate::core::Error;
use crate::core::error::Kind;

/// A user of Redis and a password: what the closure of
/// [`RedisStoreBuilder::credentials`](crate::store::RedisStoreBuilder::credentials) returns for
/// each new connection.
///
/// Its `Debug` output has the user and not the password.
///
/// # Examples
///
/// ```
/// use tollgate::store::Credentials;
///
/// let credentials = Credentials::new("limiter", "secret");
/// assert_eq!(credentials, Credentials::new("limiter", "secret"));
/// assert!(!format!("{credentials:?}").contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use]
pub struct Credentials {
    user: String,
    password: String,
}

impl Credentials {
    /// Returns the credentials of a user. The user that needs no name has the name `default` in
    /// Redis.
    ///
    /// Both are sent as they are, and checked by the server only.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Credentials that are being fetched.
type Fetching = Pin<Box<dyn Future<Output = Result<Credentials, Box<dyn StdError + Send + Sync>>> + Send>>;

/// A closure of the application that returns credentials, which may differ each time.
#[derive(Clone)]
pub(in crate::store::redis) struct Provider {
    fetch: Arc<dyn Fn() -> Fetching + Send + Sync>,
}

impl Provider {
    /// Returns a provider that calls a closure, in tasks of its own.
    pub(in crate::store::redis) fn new<F, T, E>(credentials: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let fetch = move || -> Fetching {
            let fetching = credentials();
            Box::pin(async move { fetching.await.map_err(Into::into) })
        };
        Self { fetch: Arc::new(fetch) }
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
    /// What the URL says.
    info: RedisConnectionInfo,
    /// What returns user and password instead of those, if anything.
    provider: Option<Provider>,
}

impl Login {
    /// Returns a login as the URL has it, or with what the provider returns at the time.
    pub(super) fn new(info: RedisConnectionInfo, provider: Option<Provider>) -> Self {
        Self { info, provider }
    }

    /// Returns what the next connection logs in with. The provider is called for each.
    ///
    /// # Errors
    ///
    /// If the provider returns an error or panics: the error is one of the connection.
    pub(super) async fn next(&self) -> Result<RedisConnectionInfo, Error> {
        let Some(Provider { fetch }) = self.provider.clone() else { return Ok(self.info.clone()) };
        let none = || Error::new(Kind::Connection, "there are no credentials for Redis");
        let login = own_task(move || fetch()).await;
        let Credentials { user, password } =
            login.map_err(|error| none().with_source(error))?.map_err(|error| none().with_source(error))?;
        Ok(self.info.clone().set_username(user).set_password(password))
    }
}
