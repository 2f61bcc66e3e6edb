//! The responses of shedders to the requests that they shed.
//!
//! For gRPC calls it is `UNAVAILABLE`, for all others a 503 with a problem document, which names the shedder. When to
//! retry is a guess: how long there will be too much load is not known.

use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};

use super::class::Class;
use crate::core::PolicyName;
use crate::http::grpc;
use crate::http::headers::whole_seconds;
use crate::http::policy::Refused;
use crate::http::response::{closing, problem, without_body};

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
    name: PolicyName,
    class: Class,
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

/// Returns the response to a request that `name` has shed, to be retried after about `wait`.
pub(super) fn response(parts: &Parts, name: &PolicyName, class: Class, wait: Duration) -> Response<Bytes> {
    let mut response = if grpc::is_call(parts) {
        grpc::for_client(parts, grpc::unavailable(wait))
    } else {
        problem::shed(whole_seconds(wait).max(1), name)
    };
    response.extensions_mut().insert(Refused::Inside);
    response.extensions_mut().insert(Shed { name: name.clone(), class });
    closing(parts, if parts.method == Method::HEAD { without_body(response) } else { response })
}
