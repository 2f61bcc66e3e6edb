//! How much a request matters, and who determines it.
//!
//! The head of a request comes in, and its [`Class`] goes out. The layer that determines it inserts it into the
//! extensions of the request, so that handlers and shedders further inside find it.

use std::sync::Arc;

use http::Method;
use http::request::Parts;

/// How much a request matters: the less, the sooner it is shed.
///
/// Classes are ordered from the one that is never shed to the one that is shed first.
///
/// # Examples
///
/// ```
/// use tollgate::shed::Class;
///
/// assert!(Class::Critical < Class::Write && Class::Write < Class::Read && Class::Read < Class::Test);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Never shed.
    Critical,
    /// Changes something.
    Write,
    /// Only reads.
    Read,
    /// Test traffic: the first to be shed.
    Test,
}

impl Class {
    /// Returns the class that is in the extensions of the request, or otherwise [`Read`](Self::Read) for GET, HEAD,
    /// OPTIONS and TRACE, and [`Write`](Self::Write) for other methods.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::shed::Class;
    ///
    /// let (mut parts, ()) = Request::post("/charges").body(())?.into_parts();
    /// assert_eq!(Class::of(&parts), Class::Write);
    /// parts.extensions.insert(Class::Critical);
    /// assert_eq!(Class::of(&parts), Class::Critical);
    /// # Ok::<(), http::Error>(())
    /// ```
    pub fn of(parts: &Parts) -> Self {
        let given = parts.extensions.get::<Self>().copied();
        given.unwrap_or(match parts.method {
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE => Self::Read,
            _ => Self::Write,
        })
    }

    /// Returns the class as the labels of metrics have it: `"critical"`, `"write"`, `"read"` or `"test"`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Write => "write",
            Self::Read => "read",
            Self::Test => "test",
        }
    }
}

/// Determines the class of requests: a closure, or [`Class::of`].
#[derive(Clone)]
pub(super) struct Classifier(Arc<dyn Fn(&Parts) -> Class + Send + Sync>);

impl Classifier {
    pub(super) fn new(class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> Self {
        Self(Arc::new(class))
    }

    /// Determines the class of a request, once, and inserts it into its extensions.
    pub(super) fn classify(&self, parts: &mut Parts) -> Class {
        let class = (self.0)(parts);
        // That of a shedder further outside is there already; each insertion allocates.
        if parts.extensions.get() != Some(&class) {
            parts.extensions.insert(class);
        }
        class
    }
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new(Class::of)
    }
}
