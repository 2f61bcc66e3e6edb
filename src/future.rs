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
use tokio::time::Sleep;
use tower_service::Service;

use crate::admission::{Admission, Held, Limiter, Verdict};
use crate::{Decision, ResponseBody};

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit) service.
    ///
    /// # Cancellation
    ///
    /// Dropping it is safe at any point. Units of an admitted request stay taken, but for the slot of
    /// one that waits for its turn: it is given back if nobody queued behind it.
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
        Queueing { turn: Pin<Box<Sleep>>, call: Option<(S, Q)>, decision: Decision, held: Option<Held> },
        Readying { call: Option<(S, Q)>, decision: Decision, held: Option<Held> },
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

impl<S, B> State<S, Request<B>, S::Future>
where
    S: Service<Request<B>>,
{
    /// Calls the inner service, which is ready.
    fn calling((mut inner, mut request): (S, Request<B>), decision: Decision, held: Held) -> Self {
        request.extensions_mut().insert(decision.clone());
        State::Calling { future: inner.call(request), decision, held }
    }

    /// Waits for the request's turn. The inner service is not kept ready meanwhile: a clone of it is
    /// asked again.
    fn queueing((inner, request): (S, Request<B>), decision: Decision, held: Held) -> Self
    where
        S: Clone,
    {
        let call = Some((inner.clone(), request));
        drop(inner);
        let turn = Box::pin(tokio::time::sleep(decision.delay()));
        let held = Some(held.waits_for(&decision));
        State::Queueing { turn, call, decision, held }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
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
                    let call = call.take().expect("a request is decided once");
                    let Verdict::Admitted(decision, held) = verdict else {
                        return Poll::Ready(Ok(this.limiter.refuse(verdict, call.1)));
                    };
                    let next = if decision.delay().is_zero() {
                        State::calling(call, decision, held)
                    } else {
                        State::queueing(call, decision, held)
                    };
                    this.state.set(next);
                }
                StateProjection::Queueing { turn, call, decision, held } => {
                    ready!(turn.as_mut().poll(cx));
                    let held = held.take().map(Held::has_its_turn);
                    let next = State::Readying { call: call.take(), decision: decision.clone(), held };
                    this.state.set(next);
                }
                StateProjection::Readying { call, decision, held } => {
                    if let Some((inner, _)) = call {
                        ready!(inner.poll_ready(cx))?;
                    }
                    let (call, held) = call.take().zip(held.take()).expect("a request has its turn once");
                    let next = State::calling(call, decision.clone(), held);
                    this.state.set(next);
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
