use std::error::Error as StdError;
use std::fmt;

/// Any error of a body.
pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// The error of a [`ResponseBody`](crate::ResponseBody) or a [`LimitedBody`](crate::bandwidth::LimitedBody).
///
/// Its [source](StdError::source) is the error of the inner body, or the [`FlowError`](crate::FlowError) of a limit
/// that cuts the body. It is displayed as that is.
///
/// # Examples
///
/// ```
/// use tollgate::{BodyError, FlowError};
///
/// fn is_cut(error: &BodyError) -> bool {
///     std::error::Error::source(error).is_some_and(|cause| cause.is::<FlowError>())
/// }
/// # let _ = is_cut;
/// ```
#[derive(Debug)]
pub struct BodyError(BoxError);

impl BodyError {
    /// Makes one of its cause; of another one, as of a body of a layer inside, the same.
    pub(crate) fn new(cause: impl Into<BoxError>) -> Self {
        cause.into().downcast().map_or_else(Self, |error| *error)
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for BodyError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}
