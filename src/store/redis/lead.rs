//! A call that outlives its caller.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle as Runtime;

/// A call that its caller waits for, and that goes on in the background if the caller goes away.
pub(super) struct Lead {
    call: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    runtime: Runtime,
}

impl Lead {
    pub(super) fn new(call: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { call: Some(Box::pin(call)), runtime: Runtime::current() }
    }
}

impl Future for Lead {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let done = self.call.as_mut().is_none_or(|call| call.as_mut().poll(cx).is_ready());
        if !done {
            return Poll::Pending;
        }
        self.call = None;
        Poll::Ready(())
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.runtime.spawn(call);
        }
    }
}
