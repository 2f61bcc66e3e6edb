//! How much a request matters, and who determines it.
//!
//! The head of a request comes in, and its [`Class`] goes out. The layer that determines it inserts it into the
//! extensions of the request, so that handlers and shedders further inside find it.

use http::Method;
use http::request::Parts;

use crate::core::PolicyName;

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
        parts.extensions.get().copied().unwrap_or(match parts.method {
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

/// In the extensions of the response to a request that was shed: by which shedder, and as what.
///
/// # Examples
///
/// ```
/// use http::{Request, Response};
/// use std::convert::Infallible;
/// use tollgate::shed::{Class, FleetShedLayer, Shed};
/// use tollgate::{MemoryStore, Quota};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Infallible> {
/// let inner = service_fn(|_: Request<String>| async { Ok::<_, Infallible>(Response::new("hello".to_owned())) });
/// let service = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(2), 0.5).layer(inner);
///
/// // It is in progress until the end of its body. The other slot is for critical requests.
/// let first = service.clone().oneshot(Request::new(String::new())).await?;
/// let second = service.oneshot(Request::new(String::new())).await?;
/// let shed = second.extensions().get::<Shed>().expect("it was shed");
/// assert_eq!((shed.name(), shed.class()), ("fleet", Class::Read));
/// # drop(first);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shed {
    pub(super) name: PolicyName,
    pub(super) class: Class,
}

impl Shed {
    /// Returns the name of the shedder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the class of the request.
    pub fn class(&self) -> Class {
        self.class
    }
}
