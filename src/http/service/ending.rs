//! The end of a gRPC call: its trailers say whether it failed.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::HeaderMap;
use http_body::{Body, Frame};

use crate::http::account::{Account, InTime};
use crate::http::grpc;

/// A frame of a body.
type Polled<B> = Poll<Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>>;

/// What is left to settle of a call by its trailers. Dropped before they come, it leaves that as it is.
pub(super) struct Ending {
    account: Option<Account>,
    /// Trailers, and what they wait for: the client's next request may depend on it.
    held: Option<(InTime, HeaderMap)>,
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
                    Some(settled) => self.held = Some((settled, trailers)),
                    None => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                },
                Err(data) => {
                    // Nobody polls a body that says this was all.
                    if body.is_end_stream() {
                        drop(self.settle(true));
                    }
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
        if let Some((settled, _)) = &mut self.held {
            let _ = ready!(settled.as_mut().poll(cx));
        }
        Poll::Ready(self.held.take().map(|(_, trailers)| Ok(Frame::trailers(trailers))))
    }

    /// Settles the call once. Returns what to wait for.
    fn settle(&mut self, has_failed: bool) -> Option<InTime> {
        let mut account = self.account.take()?;
        let settled = account.settle_call(has_failed)?;
        Some(account.in_time(settled))
    }
}

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").finish_non_exhaustive()
    }
}
