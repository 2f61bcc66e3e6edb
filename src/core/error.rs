//! Error type of the crate.
//!
//! It is opaque: predicates distinguish kinds, so that kinds and causes can be added without breaking users. One
//! failure may end many decisions at once. Their errors share a [`CallId`], so that it is counted once.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::iter;
use std::sync::{Arc, OnceLock};

use crate::core::call::CallId;

/// An error of this crate: a setting that can never work, a store that could not decide, or a wait that ended in a
/// denial.
///
/// The message names the value and the bounds. [`source`](StdError::source) returns the cause, if there is
/// one. The alternate format (`{error:#}`) is one line without control characters, with the whole chain of causes:
/// `cannot connect to Redis at 127.0.0.1:6379: Connection refused (os error 111)`.
///
/// # Examples
///
/// ```
/// use tollgate::Quota;
///
/// let error = Quota::try_per_minute(0).expect_err("0 is not allowed");
/// assert!(error.is_invalid());
/// assert_eq!(error.to_string(), "limit 0 admits nothing: at least 1 is needed");
/// ```
pub struct Error {
    kind: Kind,
    message: Box<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// Details that the store attaches for wrapper stores, or the decision of a denial.
    detail: Option<Arc<dyn Any + Send + Sync>>,
    /// Call that failed, if several decisions depended on it; set when the error is shared for the first time.
    call: OnceLock<CallId>,
    unsent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invalid,
    Connection,
    Timeout,
    Store,
    Crowd,
    Denied,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into().into_boxed_str();
        Self { kind, message, source: None, detail: None, call: OnceLock::new(), unsent: false }
    }

    /// An error about a setting or a request that can never work, which the circuit breaker does not count.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// Sets the cause.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::error::Error as _;
    /// use tollgate::Error;
    ///
    /// let cause = "x".parse::<u64>().unwrap_err();
    /// let error = Error::invalid("the limit is no number").with_source(cause);
    /// assert!(error.is_invalid() && error.source().is_some());
    /// ```
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// Returns the same error for another of the callers whose call failed: for the circuit breaker and in metrics it
    /// is one failure, however many callers have it.
    #[must_use]
    pub fn shared(&self) -> Self {
        let call = OnceLock::from(*self.call.get_or_init(CallId::new));
        let (source, detail) = (self.source.clone(), self.detail.clone());
        Self { kind: self.kind, message: self.message.clone(), source, detail, call, unsent: self.unsent }
    }

    #[cfg(any(feature = "redis", test))]
    pub(crate) fn with_call(mut self, call: CallId) -> Self {
        self.call = OnceLock::from(call);
        self
    }

    pub(crate) fn call(&self) -> Option<CallId> {
        self.call.get().copied()
    }

    pub(crate) fn with_detail(mut self, detail: impl Any + Send + Sync) -> Self {
        self.detail = Some(Arc::new(detail));
        self
    }

    pub(crate) fn detail<T: Any>(&self) -> Option<&T> {
        self.detail.as_deref()?.downcast_ref()
    }

    /// Marks the failed operation of a custom store as certainly not done, so that it may be tried again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io;
    /// use tollgate::Error;
    ///
    /// let cause = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
    /// let rolled_back = Error::store("the transaction was rolled back", cause).unsent();
    /// assert!(rolled_back.is_store());
    /// ```
    #[must_use]
    pub fn unsent(self) -> Self {
        Self { unsent: true, ..self }
    }

    /// Returns `true` if the failed operation was certainly not done, so that it may be tried again.
    pub fn is_unsent(&self) -> bool {
        self.unsent || self.is_of_a_crowd()
    }

    /// Creates an error of a store that was not called, because too many callers wait for it already. It is
    /// [`unsent`](Self::unsent), and the circuit breaker does not count it.
    pub fn overloaded(message: impl Into<String>) -> Self {
        Self::new(Kind::Crowd, message)
    }

    /// Creates an error of a custom store, with its cause.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io;
    /// use tollgate::Error;
    ///
    /// let cause = io::Error::from(io::ErrorKind::BrokenPipe);
    /// let error = Error::store("the table of limits could not be read", cause);
    /// assert!(error.is_store());
    /// assert_eq!(format!("{error:#}"), "the table of limits could not be read: broken pipe");
    /// ```
    pub fn store(message: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Kind::Store, message).with_source(source)
    }

    /// Creates an error of a custom store that could not be reached, or whose connection was lost.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io;
    /// use tollgate::Error;
    ///
    /// let cause = io::Error::from(io::ErrorKind::ConnectionRefused);
    /// assert!(Error::connection("the database of limits is not there", cause).is_connection());
    /// ```
    pub fn connection(message: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Kind::Connection, message).with_source(source)
    }

    /// An error of a store outside of this crate that did not decide in time.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(Kind::Timeout, message)
    }

    /// Returns `true` if a setting can never work: a quota, a policy, a key or a file.
    pub fn is_invalid(&self) -> bool {
        self.kind == Kind::Invalid
    }

    /// Returns `true` if the store could not be reached, rejected the connection, or lost it.
    pub fn is_connection(&self) -> bool {
        self.kind == Kind::Connection
    }

    /// Returns `true` if the store did not decide within its timeout.
    ///
    /// The store may still have taken the units, because a call is not sent twice: see
    /// [`Store::decide`](crate::store::Store::decide).
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::Timeout
    }

    /// Returns `true` if the store replied with an error or with something invalid, or had no capacity for the call.
    pub fn is_store(&self) -> bool {
        matches!(self.kind, Kind::Store | Kind::Crowd)
    }

    /// Returns `true` if limits still denied when a [wait for them](crate::Limiter::until_ready) was over.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("mail", Quota::per_hour(1))]);
    /// let (ada, timeout) = (Key::new("user", "ada"), Duration::from_secs(1));
    /// let (_decision, _slots) = limiter.until_ready(&ada, timeout).await?;
    ///
    /// let error = limiter.until_ready(&ada, timeout).await.expect_err("an hour is too long");
    /// assert!(error.is_denied());
    /// assert!(error.decision().and_then(|denial| denial.retry_after()) > Some(timeout));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_denied(&self) -> bool {
        self.kind == Kind::Denied
    }

    pub(crate) fn is_of_a_crowd(&self) -> bool {
        self.kind == Kind::Crowd
    }
}

/// Prints the message and all causes, because a `main` that returns the error prints its `Debug` form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(self))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() { f.write_str(&chain(self)) } else { f.write_str(&self.message) }
    }
}

pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut line = error.to_string();
    for cause in iter::successors(error.source(), |&cause| cause.source()) {
        let cause = cause.to_string();
        if !line.contains(&cause) {
            line = line + ": " + &cause;
        }
    }
    line.replace(char::is_control, " ")
}

#[track_caller]
pub(crate) fn built<T>(result: Result<T, Error>) -> T {
    match result {
        Ok(built) => built,
        Err(error) => panic!("{error:#}"),
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
