//! The one error type of the crate.

use std::error::Error as StdError;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::call::CallId;

/// What went wrong: a setting that can never work, or a store that could not decide.
///
/// The message says what was given, what is allowed and what to do; the cause, where there is one,
/// is in [`source`](StdError::source).
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: Box<str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    outage: Option<Outage>,
    /// What failed, if others were told of the same: known from the first of them on.
    call: OnceLock<CallId>,
}

/// What a store says of a failure of one of its servers, for each of which it has a breaker: the
/// failure says nothing of the others.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cluster"), allow(dead_code, reason = "other stores have one server"))]
pub(crate) struct Outage {
    /// How long until the server is asked again; zero if it is asked.
    pub(crate) next_probe: Duration,
    /// Since when it has not answered.
    pub(crate) failing_since: Option<Instant>,
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
        Self { kind, message: message.into().into_boxed_str(), source: None, outage: None, call: OnceLock::new() }
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
        let Self { kind, outage, .. } = *self;
        Self { kind, message: self.message.clone(), source: self.source.clone(), outage, call }
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

    /// The error as one of a single server of the store.
    #[cfg(feature = "cluster")]
    pub(crate) fn of_one_server(mut self, outage: Outage) -> Self {
        self.outage = Some(outage);
        self
    }

    /// What its server's breaker knows, if the store has one for each of its servers.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.outage
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
