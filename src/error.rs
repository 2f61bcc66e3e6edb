//! The one error type of the crate.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What went wrong: a setting that can never work, or a store that could not decide.
///
/// The message says what was given, what is allowed and what to do; the cause, where there is one,
/// is in [`source`](StdError::source).
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: Box<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invalid,
    Connection,
    Timeout,
    Store,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into_boxed_str(), source: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// The same error for one of several callers.
    pub(crate) fn shared(&self) -> Self {
        Self { kind: self.kind, message: self.message.clone(), source: self.source.clone() }
    }

    /// An error of a store outside this crate.
    pub fn store(message: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::new(Kind::Store, message).with_source(source)
    }

    /// Whether a quota, a policy, a key or a file holds something that can never work.
    pub fn is_invalid(&self) -> bool {
        self.kind == Kind::Invalid
    }

    /// Whether the store could not be reached, or refused the connection.
    pub fn is_connection(&self) -> bool {
        self.kind == Kind::Connection
    }

    /// Whether the store did not answer in its budget of time.
    ///
    /// What was asked may still have happened: it is never sent a second time.
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::Timeout
    }

    /// Whether the store answered with an error, or with something that is no answer.
    pub fn is_store(&self) -> bool {
        self.kind == Kind::Store
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) if f.alternate() => write!(f, ": {source}"),
            _ => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
