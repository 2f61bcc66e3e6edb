//! The one error type of the crate.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::core::call::CallId;

/// What went wrong: a setting that can never work, or a store that could not decide.
///
/// The message says what was given, what is allowed and what to do; the cause, where there is one,
/// is in [`source`](StdError::source).
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: Box<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// What the store that made it knows besides, for stores around it.
    detail: Option<Arc<dyn Any + Send + Sync>>,
    /// What failed, if others were told of the same: known from the first of them on.
    call: OnceLock<CallId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invalid,
    Connection,
    Timeout,
    Store,
    /// Too many wait already: the store was not asked.
    Crowd,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into().into_boxed_str(), source: None, detail: None, call: OnceLock::new() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(Arc::from(source.into()));
        self
    }

    /// The same error for one of several callers: one failure, however many of them are told of it.
    pub(crate) fn shared(&self) -> Self {
        let call = OnceLock::from(*self.call.get_or_init(CallId::new));
        let (source, detail) = (self.source.clone(), self.detail.clone());
        Self { kind: self.kind, message: self.message.clone(), source, detail, call }
    }

    /// The error as one of a call.
    #[cfg(test)]
    pub(crate) fn of_call(mut self, call: CallId) -> Self {
        self.call = OnceLock::from(call);
        self
    }

    /// The call that failed, if several decisions depended on it.
    pub(crate) fn call(&self) -> Option<CallId> {
        self.call.get().copied()
    }

    /// The error with what its store knows besides.
    #[cfg(feature = "cluster")]
    pub(crate) fn with_detail(mut self, detail: impl Any + Send + Sync) -> Self {
        self.detail = Some(Arc::new(detail));
        self
    }

    /// What its store knows besides, if it is of this type.
    pub(crate) fn detail<T: Any>(&self) -> Option<&T> {
        self.detail.as_deref()?.downcast_ref()
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
        matches!(self.kind, Kind::Store | Kind::Crowd)
    }

    /// Whether the store was not asked, as too many wait for it: that says nothing of its health.
    pub(crate) fn is_of_a_crowd(&self) -> bool {
        self.kind == Kind::Crowd
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
