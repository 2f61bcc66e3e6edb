//! The service that is limited, and how one is called.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use http::{Request, Response};
use tower::Service;

/// A service that does nothing.
#[derive(Clone)]
pub(crate) struct Inner;

impl Service<Request<String>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        black_box(&request);
        ready(Ok(Response::new(Body::empty())))
    }
}

/// A service of any type: it replies at once, and the body of the response is dropped.
pub(crate) type Boxed = Box<dyn FnMut(Request<String>) -> Response<()>>;

pub(crate) fn boxed<S, B>(mut service: S) -> Boxed
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + 'static,
{
    Box::new(move |request| {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut cx).is_ready());
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else {
            unreachable!("counters in memory reply at once");
        };
        black_box(response).map(drop)
    })
}
