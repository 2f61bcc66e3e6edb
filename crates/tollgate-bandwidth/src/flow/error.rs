use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Decision, Error, Quota};

/// The reason why units of a [`Flow`](crate::Flow) may not pass now.
///
/// # Examples
///
/// ```
/// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
/// use tollgate_bandwidth::{Flow, FlowError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::Error> {
/// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("messages", Quota::per_hour(2))]);
/// let flow = Flow::of(&limiter, &Key::new("user", "ada")).await?;
/// flow.acquire(2).await.expect("two messages an hour");
///
/// let error: FlowError = flow.check(1).await.expect_err("the third one");
/// assert_eq!(error.policy(), Some("messages"));
/// assert!(error.retry_after().is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FlowError(pub(super) Reason);

#[derive(Clone, Debug)]
pub(super) enum Reason {
    Pending,
    Refused { by: Option<(Box<str>, Quota)>, retry_after: Option<Duration> },
    Failed(Arc<Error>),
}

impl FlowError {
    pub(super) fn refused(decision: Option<&Decision>, retry_after: Option<Duration>) -> Self {
        let binding = decision.and_then(Decision::binding);
        let by = binding.map(|outcome| (outcome.policy().into(), *outcome.quota()));
        Self(Reason::Refused { by, retry_after })
    }

    pub(crate) fn into_error(self) -> Error {
        match self.0 {
            Reason::Failed(error) => Arc::try_unwrap(error).unwrap_or_else(|error| error.shared()),
            _ => Error::invalid(self.to_string()),
        }
    }

    /// Returns `true` if the units are not denied, but a call for a portion is in flight and may lease them soon.
    pub fn is_pending(&self) -> bool {
        matches!(self.0, Reason::Pending)
    }

    /// Returns `true` if the store denies the units.
    pub fn is_denied(&self) -> bool {
        matches!(self.0, Reason::Refused { .. })
    }

    /// Returns `true` if no decision could be made, because the store failed and
    /// [`OnFailure::Deny`](tollgate::OnFailure::Deny) is set. The [`source`](StdError::source) is the error of the
    /// store.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.0, Reason::Failed(_))
    }

    /// Returns the name of the policy that denies the units, or of the policy with the fewest units left.
    pub fn policy(&self) -> Option<&str> {
        self.by().map(|(policy, _)| &**policy)
    }

    /// Returns the quota of that policy.
    pub fn quota(&self) -> Option<&Quota> {
        self.by().map(|(_, quota)| quota)
    }

    pub(super) fn by(&self) -> Option<&(Box<str>, Quota)> {
        let Reason::Refused { by, .. } = &self.0 else { return None };
        by.as_ref()
    }

    /// Returns the time until the units may be allowed, or `None` if it is unknown, or no wait can help. For a window
    /// it is the time until the window resets, because it is unknown when a part of a sliding window returns.
    pub fn retry_after(&self) -> Option<Duration> {
        let Reason::Refused { retry_after, .. } = &self.0 else { return None };
        *retry_after
    }
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reason::Pending => f.write_str("no units are leased yet: try again in a moment"),
            Reason::Refused { by: Some((policy, quota)), .. } => {
                write!(f, "the limit of policy {policy:?} is reached: {quota}")
            }
            Reason::Refused { by: None, .. } => f.write_str("a limit is reached"),
            Reason::Failed(error) => {
                f.write_str("no decision could be made on the units of a flow")?;
                // Its causes are in the alternate format.
                if f.alternate() { write!(f, ": {error:#}") } else { Ok(()) }
            }
        }
    }
}

impl StdError for FlowError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let Reason::Failed(error) = &self.0 else { return None };
        Some(&**error)
    }
}
