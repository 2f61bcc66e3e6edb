//! Response future, a state machine.
//!
//! A request goes through *admitting* (keys and quotas are looked up, the store decides), and for a leaky bucket
//! through *queueing* (it waits in the queue, and then until the inner service is ready again). Then comes *calling*
//! and, if the client's next request may depend on the settlement, *settling* (the response waits for the store). A
//! request without delay begins in *calling* if the store decides at once: that path does not allocate.

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
use crate::http::account::{Account, ActualCost, Admitted, InTime, RateLimitHandle};
use crate::http::admission::Admission;
use crate::http::gate::LayerState;
use crate::http::response::Refusal;

pin_project! {
    /// Future of a [`RateLimit`](crate::RateLimit) service's response.
    ///
    /// It resolves to the inner service's response with the headers of the limits, to a denial, or to the inner
    /// service's error. With [`expose_decisions`](crate::RateLimitLayer::expose_decisions), responses have the
    /// [`Decision`](crate::Decision) in their extensions. A queued request needs a tokio runtime with timers enabled.
    ///
    /// # Panics
    ///
    /// If it is polled again after it resolved.
    ///
    /// # Cancellation
    ///
    /// Dropping it is safe at any point. Units of an allowed request stay taken, unless a policy
    /// [refunds](crate::Policy::refund_dropped) them. The place of a request that waits in the queue of a leaky bucket
    /// is refunded if no other request has queued behind it.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: ResponseState<S, Request<B>, S::Future, Result<S::Response, S::Error>>,
    }
}

pin_project! {
    #[project = StateProjection]
    // Each `Option` is taken once, on the way to the next state.
    enum ResponseState<S, Q, F, A> {
        Admitting { gate: Arc<LayerState>, admission: Admission, call: Option<(S, Q)> },
        /// Waits in a leaky bucket, and then until the inner service is ready again.
        Queueing { turn: Option<Pin<Box<Sleep>>>, call: Option<(S, Q, Account)> },
        Calling { #[pin] future: F, admitted: Option<Admitted> },
        /// Waits for the store to settle the request, within the layer's timeout.
        Settling { waiting: Option<SettlingResponse<A>> },
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    /// `inner` has been polled ready.
    pub(crate) fn admitting(inner: S, request: Request<B>, admission: Admission, gate: &Arc<LayerState>) -> Self {
        let state = ResponseState::Admitting { gate: Arc::clone(gate), admission, call: Some((inner, request)) };
        Self { state }
    }

    /// The request had [entered](Admitted::enter) before its call.
    #[inline]
    pub(crate) fn calling(future: S::Future, admitted: Admitted) -> Self {
        Self { state: ResponseState::Calling { future, admitted: Some(admitted) } }
    }
}

impl<S, B, A> ResponseState<S, Request<B>, S::Future, A>
where
    S: Service<Request<B>>,
{
    #[inline]
    fn calling(inner: &mut S, mut request: Request<B>, mut admitted: Admitted) -> Self {
        admitted.enter(request.extensions_mut());
        ResponseState::Calling { future: inner.call(request), admitted: Some(admitted) }
    }

    /// Waits in the queue. A clone of `inner` is polled ready afterwards, because a ready service may hold a permit.
    fn queueing(inner: S, request: Request<B>, account: Account) -> Self
    where
        S: Clone,
    {
        let turn = Box::pin(tokio::time::sleep(account.decision().delay()));
        let clone = inner.clone();
        drop(inner);
        ResponseState::Queueing { turn: Some(turn), call: Some((clone, request, account)) }
    }
}

type Returned<R, E> = Result<Response<R>, E>;

type Passed<R, E> = Result<Response<ResponseBody<R>>, E>;

type SettlingResponse<A> = (InTime, Box<(A, Account)>);

/// Breaks with the response, or continues with one that has to wait for the store.
#[inline]
fn finish<R, E>(
    returned: Returned<R, E>,
    admitted: &mut Option<Admitted>,
) -> ControlFlow<Passed<R, E>, SettlingResponse<Returned<R, E>>>
where
    R: Body,
{
    match admitted {
        Some(Admitted::WithAccount(account)) => {
            let has_real_cost = |response: &Response<R>| response.extensions().get::<ActualCost>().is_some();
            if !account.gate().is_metered && returned.as_ref().is_ok_and(has_real_cost) {
                account.warn_of_real_cost();
            }
            if account.ends_as_decided() {
                return Break(body::pass_as_decided(returned, account.gate(), account.decision()));
            }
        }
        Some(Admitted::AsDecided { gate, decision }) => {
            return Break(body::pass_as_decided(returned, gate, decision));
        }
        Some(Admitted::Outside) | None => return Break(returned.map(|response| response.map(ResponseBody::unlimited))),
    }
    let Some(Admitted::WithAccount(mut account)) = admitted.take() else { unreachable!("all others have ended") };
    let returned = returned.map(Response::into_parts);
    let settled = account.settle(returned.as_ref().ok().map(|(parts, _)| parts));
    let returned = returned.map(|(parts, body)| Response::from_parts(parts, body));
    match settled {
        Some(settled) => Continue((settled, Box::new((returned, account)))),
        None => Break(body::pass(returned, account)),
    }
}

fn refused<B, R>(gate: &LayerState, refusal: Refusal, request: Request<B>) -> Response<ResponseBody<R>>
where
    B: Body + Send + 'static,
{
    let (parts, body) = request.into_parts();
    // A check by an outer layer's handle may await a denial that is made later.
    let has_outer = parts.extensions.get::<RateLimitHandle>().is_some();
    let mut response = gate.refuse(refusal, &parts, has_outer);
    gate.responses.drain.start(&parts, body, response.headers_mut());
    response.map(ResponseBody::own)
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    B: Body + Send + 'static,
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
                    let (mut inner, request) = call.take().expect("a request is decided once");
                    let next = match verdict {
                        Ok(Admitted::WithAccount(account)) if account.is_delayed() => {
                            ResponseState::queueing(inner, request, account)
                        }
                        Ok(admitted) => ResponseState::calling(&mut inner, request, admitted),
                        Err(refusal) => return Poll::Ready(Ok(refused(gate, refusal, request))),
                    };
                    this.state.set(next);
                }
                StateProjection::Queueing { turn, call } => {
                    if let Some(sleep) = turn {
                        ready!(sleep.as_mut().poll(cx));
                        *turn = None;
                        *call = call.take().map(|(inner, request, account)| (inner, request, account.takes_turn()));
                    }
                    let (inner, ..) = call.as_mut().expect("a request has its turn once");
                    let is_ready = ready!(inner.poll_ready(cx));
                    let (mut inner, request, account) = call.take().expect("it was there a line before");
                    let Err(error) = is_ready else {
                        this.state.set(ResponseState::calling(&mut inner, request, Admitted::WithAccount(account)));
                        continue;
                    };
                    match finish(Err(error), &mut Some(Admitted::WithAccount(account))) {
                        Continue(waiting) => this.state.set(ResponseState::Settling { waiting: Some(waiting) }),
                        Break(passed) => return Poll::Ready(passed),
                    }
                }
                StateProjection::Calling { future, admitted } => {
                    let returned = ready!(future.poll(cx));
                    match finish(returned, admitted) {
                        Continue(waiting) => this.state.set(ResponseState::Settling { waiting: Some(waiting) }),
                        Break(passed) => return Poll::Ready(passed),
                    }
                }
                StateProjection::Settling { waiting } => {
                    if let Some((settled, _)) = waiting {
                        // If the store does not reply within the timeout, headers show what follows from the changes.
                        let _ = ready!(settled.as_mut().poll(cx));
                    }
                    let (_, returned) = waiting.take().expect("a response comes once");
                    let (returned, account) = *returned;
                    return Poll::Ready(body::pass(returned, account));
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
