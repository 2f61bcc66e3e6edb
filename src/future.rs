//! The future of a response: admission, the inner call, headers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::admission::{Admission, Held, Limiter, Verdict};
use crate::{Decision, ResponseBody};

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit) service.
    ///
    /// # Cancellation
    ///
    /// Dropping it is safe at any point. Units of an admitted request stay taken.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        limiter: Arc<Limiter>,
        #[pin]
        state: State<S, Request<B>, S::Future>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, Q, F> {
        Admitting { admission: Admission, call: Option<(S, Q)> },
        Calling { #[pin] future: F, decision: Decision, held: Held },
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(crate) fn new(inner: S, request: Request<B>, admission: Admission, limiter: Arc<Limiter>) -> Self {
        Self { limiter, state: State::Admitting { admission, call: Some((inner, request)) } }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProjection::Admitting { admission, call } => {
                    let verdict = ready!(admission.poll(this.limiter, cx));
                    let (mut inner, mut request) = call.take().expect("a request is decided once");
                    let Verdict::Admitted(decision, held) = verdict else {
                        return Poll::Ready(Ok(this.limiter.refuse(verdict, request)));
                    };
                    request.extensions_mut().insert(decision.clone());
                    let future = inner.call(request);
                    this.state.set(State::Calling { future, decision, held });
                }
                StateProjection::Calling { future, decision, .. } => {
                    let response = ready!(future.poll(cx))?;
                    return Poll::Ready(Ok(this.limiter.pass(response, decision)));
                }
            }
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
