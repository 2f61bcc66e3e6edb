//! What the application connects with: its credentials, and its closures for credentials and streams.
//!
//! The closures run in tasks of their own, so that one that panics does not end the connection's task, which serves
//! others. Passwords are kept out of every `Debug` output of this crate.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{JoinError, JoinSet};

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
    pub(super) user: String,
    pub(super) password: String,
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

/// A future of the application's.
type Pending<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Returns credentials, which may differ each time.
pub(in crate::store::redis) type Provide =
    Arc<dyn Fn() -> Pending<Credentials, Box<dyn StdError + Send + Sync>> + Send + Sync>;

/// Opens a stream to a host's port.
pub(in crate::store::redis) type Dial = Arc<dyn Fn(String, u16) -> Pending<Box<dyn Duplex>, io::Error> + Send + Sync>;

/// A stream of bytes in both directions, of whatever kind.
pub(in crate::store::redis) trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

/// Calls a closure, and waits for what it returns, in a task of its own.
///
/// # Errors
///
/// If the closure or its future panics.
///
/// # Cancellation
///
/// The closure's future is dropped where it awaits something.
pub(super) async fn own_task<F, T>(call: F) -> Result<T::Output, JoinError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Future<Output: Send + 'static> + Send + 'static,
{
    let mut task = JoinSet::new();
    task.spawn(async move { call().await });
    task.join_next().await.expect("there is one task")
}
