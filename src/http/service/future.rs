//! The future of a response: admission, the inner call, headers.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow::{self, Break, Continue};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tower::Service;

use super::body::{self, ResponseBody};
use crate::http::account::{Account, InTime};
use crate::http::admission::Admission;
use crate::http::gate::Gate;
use crate::http::response::Refusal;

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
        #[pin]
        state: State<S, Request<B>, S::Future, Result<S::Response, S::Error>>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, Q, F, A> {
        Admitting { gate: Arc<Gate>, admission: Admission, call: Option<(S, Q)> },
        Queueing { turn: Pin<Box<Sleep>>, call: Option<(S, Q, Account)> },
        Readying { call: Option<(S, Q, Account)> },
        Calling { #[pin] future: F, account: Option<Account> },
        Settling { waiting: Option<Waiting<A>> },
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    #[inline]
    pub(crate) fn new(inner: S, request: Request<B>, admission: Admission, gate: &Arc<Gate>) -> Self {
        let state = match admission {
            // Most stores answer at once and most requests need not wait: their way is short.
            Admission::Known(Some(Ok(account))) if account.decision().delay().is_zero() => {
                State::calling(inner, request, account)
            }
            admission => State::Admitting { gate: Arc::clone(gate), admission, call: Some((inner, request)) },
        };
        Self { state }
    }
}

impl<S, B, A> State<S, Request<B>, S::Future, A>
where
    S: Service<Request<B>>,
{
    /// Calls the inner service, which is ready.
    #[inline]
    fn calling(mut inner: S, mut request: Request<B>, account: Account) -> Self {
        account.enter(request.extensions_mut());
        State::Calling { future: inner.call(request), account: Some(account) }
    }

    /// Waits for the request's turn. The inner service is not kept ready meanwhile: a clone of it is
    /// asked again.
    fn queueing(inner: S, request: Request<B>, account: Account) -> Self
    where
        S: Clone,
    {
        let turn = Box::pin(tokio::time::sleep(account.decision().delay()));
        let clone = inner.clone();
        drop(inner);
        State::Queueing { turn, call: Some((clone, request, account.queues(true))) }
    }
}

/// An answer of the inner service.
type Answer<R, E> = Result<Response<R>, E>;

/// An answer as it leaves the layer.
type Passed<R, E> = Result<Response<ResponseBody<R>>, E>;

/// An answer that waits for its request's settlement.
type Waiting<A> = (InTime, Box<(A, Account)>);

/// Settles a request: its answer, unless that has to wait.
#[inline]
fn answered<R, E>(answer: Answer<R, E>, mut account: Account) -> ControlFlow<Passed<R, E>, Waiting<Answer<R, E>>>
where
    R: Body,
{
    let (answer, settled) = body::settle(answer, &mut account);
    let Some(settled) = settled else { return Break(body::pass(answer, account)) };
    let settled = account.in_time(settled);
    Continue((settled, Box::new((answer.map(|(parts, body)| Response::from_parts(parts, body)), account))))
}

/// The response to a request that is not admitted.
fn refused<B, R>(gate: &Gate, refusal: Refusal, request: Request<B>) -> Response<ResponseBody<R>> {
    let (parts, _) = request.into_parts();
    gate.turn_away(refusal, &parts).map(ResponseBody::own)
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
                StateProjection::Admitting { gate, admission, call } => {
                    let verdict = ready!(admission.poll(gate, cx));
                    let (inner, request) = call.take().expect("a request is decided once");
                    let account = match verdict {
                        Ok(account) => account,
                        Err(refusal) => return Poll::Ready(Ok(refused(gate, refusal, request))),
                    };
                    let waits = !account.decision().delay().is_zero();
                    let next = if waits { State::queueing } else { State::calling };
                    this.state.set(next(inner, request, account));
                }
                StateProjection::Queueing { turn, call } => {
                    ready!(turn.as_mut().poll(cx));
                    let call = call.take().map(|(inner, request, account)| (inner, request, account.queues(false)));
                    this.state.set(State::Readying { call });
                }
                StateProjection::Readying { call } => {
                    let (inner, ..) = call.as_mut().expect("a request has its turn once");
                    let is_ready = ready!(inner.poll_ready(cx));
                    let (inner, request, account) = call.take().expect("it is there");
                    let Err(error) = is_ready else {
                        this.state.set(State::calling(inner, request, account));
                        continue;
                    };
                    match answered(Err(error), account) {
                        Continue(waiting) => this.state.set(State::Settling { waiting: Some(waiting) }),
                        Break(answer) => return Poll::Ready(answer),
                    }
                }
                StateProjection::Calling { future, account } => {
                    let answer = ready!(future.poll(cx));
                    let account = account.take().expect("a response comes once");
                    match answered(answer, account) {
                        Continue(waiting) => this.state.set(State::Settling { waiting: Some(waiting) }),
                        Break(answer) => return Poll::Ready(answer),
                    }
                }
                StateProjection::Settling { waiting } => {
                    if let Some((settled, _)) = waiting {
                        // If the store does not say in time, what it was given is shown.
                        let _ = ready!(settled.as_mut().poll(cx));
                    }
                    let (_, answer) = waiting.take().expect("a response comes once");
                    let (answer, account) = *answer;
                    return Poll::Ready(body::pass(answer.map(Response::into_parts), account));
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
