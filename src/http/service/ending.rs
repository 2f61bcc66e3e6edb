//! End of a gRPC call, whose trailers have its status.
//!
//! A call that is counted by its outcome is settled here, by the status in its trailers. A call that ends without a
//! status is settled as a failure. If the body is dropped before its end, nothing is settled. If the client's next
//! request may depend on the result, the trailers wait for the store, because the client takes them for the end of the
//! call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use http_body::{Body, Frame};

use crate::http::account::{Account, InTime};
use crate::http::grpc;

pub(super) type Polled<B> = Poll<Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>>;

/// Settlement that depends on a call's trailers. Dropped before them, the debts do not change.
pub(super) struct Ending {
    account: Option<Account>,
    /// The mutex is never locked. It makes bodies `Sync`, because the future may not be.
    held: Option<(Mutex<InTime>, HeaderMap)>,
}

impl Ending {
    pub(super) fn new(account: Account) -> Self {
        Self { account: Some(account), held: None }
    }

    pub(super) fn holds_trailers(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn poll_frame<B: Body>(&mut self, mut body: Pin<&mut B>, cx: &mut Context<'_>) -> Polled<B> {
        if self.held.is_none() {
            let frame = match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => {
                    drop(self.settle(true));
                    return Poll::Ready(end);
                }
            };
            match frame.into_trailers() {
                Ok(trailers) => match self.settle(grpc::has_failed(&trailers).unwrap_or(true)) {
                    Some(settled) => self.held = Some((Mutex::new(settled), trailers)),
                    None => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                },
                Err(data) => {
                    // Settled here, because a body that reports its end is not polled again.
                    if body.is_end_stream() {
                        drop(self.settle(true));
                    }
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
        if let Some((settled, _)) = &mut self.held {
            let settled = settled.get_mut().unwrap_or_else(PoisonError::into_inner);
            let _ = ready!(settled.as_mut().poll(cx));
        }
        Poll::Ready(self.held.take().map(|(_, trailers)| Ok(Frame::trailers(trailers))))
    }

    fn settle(&mut self, has_failed: bool) -> Option<InTime> {
        self.account.take()?.settle_call(has_failed)
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").finish_non_exhaustive()
    }
}
