//! Streams and sinks whose items take units of a flow before they pass.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_sink::Sink;
use pin_project_lite::pin_project;

use super::error::FlowError;
use super::handle::Flow;

pin_project! {
    /// A stream or sink whose items wait until a [`Flow`] has units for them.
    ///
    /// As a stream, it polls the inner stream for an item, waits for the item's units, and yields it. As a sink, it
    /// accepts one item, waits for its units, and passes the item on before it accepts the next one. So it holds at
    /// most one item in each direction.
    ///
    /// [`Flow::pace`] creates it. A stream yields results: if no decision about an item could be made
    /// ([`FlowError::is_unavailable`]), the stream drops the item and yields the error. A sink fails with
    /// [`PacedError`].
    ///
    /// # Cancellation
    ///
    /// If it is dropped, a waiting item is dropped with it and takes no units.
    #[must_use = "streams do nothing unless polled"]
    pub struct Paced<S, T, C> {
        #[pin]
        inner: S,
        cost: C,
        // Each direction has its state, because a type that is both a stream and a sink may be polled by two tasks.
        stream: Waiting<T>,
        sink: Waiting<T>,
    }
}

struct Waiting<T> {
    flow: Flow,
    item: Option<(T, u64)>,
}

/// The error of a [`Paced`] sink.
#[derive(Debug)]
#[non_exhaustive]
pub enum PacedError<E> {
    /// The error of the inner sink.
    Inner(E),
    /// No decision could be made about the units of an item.
    Flow(FlowError),
}

impl<E: fmt::Display> fmt::Display for PacedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacedError::Inner(error) => error.fmt(f),
            PacedError::Flow(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for PacedError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PacedError::Inner(error) => error.source(),
            PacedError::Flow(error) => error.source(),
        }
    }
}

impl Flow {
    /// Paces a stream or a sink: each item waits until the quota has replenished its units, which `cost` returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use futures::StreamExt;
    /// use futures::stream;
    /// use tollgate::{Key, Limiter, MemoryStore, Quota, Rule};
    /// use tollgate_bandwidth::Flow;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Rule::new("bytes", Quota::per_second(1_000))]);
    /// let flow = Flow::of(&limiter, &Key::new("user", "ada")).await?;
    /// let events = stream::iter(["one", "two", "three"]);
    /// let paced = flow.pace(events, |event: &&str| event.len() as u64);
    /// assert_eq!(paced.filter_map(|event| async { event.ok() }).collect::<Vec<_>>().await, ["one", "two", "three"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn pace<S, T, C>(&self, inner: S, cost: C) -> Paced<S, T, C>
    where
        C: FnMut(&T) -> u64,
    {
        let waiting = || Waiting { flow: self.clone(), item: None };
        Paced { inner, cost, stream: waiting(), sink: waiting() }
    }
}

impl<S, T, C> Paced<S, T, C> {
    /// Returns a reference to the inner stream or sink.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the flow that items take their units from.
    pub fn flow(&self) -> &Flow {
        &self.stream.flow
    }

    /// Returns the inner stream or sink. A waiting item is dropped.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, C> Stream for Paced<S, S::Item, C>
where
    S: Stream,
    C: FnMut(&S::Item) -> u64,
{
    type Item = Result<S::Item, FlowError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        let Waiting { flow, item: waiting } = this.stream;
        if waiting.is_none() {
            let Some(item) = ready!(this.inner.poll_next(cx)) else { return Poll::Ready(None) };
            let units = (this.cost)(&item);
            *waiting = Some((item, units));
        }
        let units = waiting.as_ref().map_or(0, |(_, units)| *units);
        let taken = ready!(flow.poll_acquire(cx, units));
        Poll::Ready(waiting.take().map(|(item, _)| taken.map(|()| item)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.stream.item.is_some());
        let (least, most) = self.inner.size_hint();
        (least.saturating_add(held), most.and_then(|most| most.checked_add(held)))
    }
}

impl<S, T, C> Paced<S, T, C>
where
    S: Sink<T>,
    C: FnMut(&T) -> u64,
{
    fn poll_pass(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PacedError<S::Error>>> {
        let mut this = self.project();
        let Waiting { flow, item: waiting } = this.sink;
        let Some((_, units)) = waiting else { return Poll::Ready(Ok(())) };
        ready!(this.inner.as_mut().poll_ready(cx)).map_err(PacedError::Inner)?;
        let taken = ready!(flow.poll_acquire(cx, *units));
        let Some((item, _)) = waiting.take() else { return Poll::Ready(Ok(())) };
        taken.map_err(PacedError::Flow)?;
        Poll::Ready(this.inner.start_send(item).map_err(PacedError::Inner))
    }
}

impl<S, T, C> Sink<T> for Paced<S, T, C>
where
    S: Sink<T>,
    C: FnMut(&T) -> u64,
{
    type Error = PacedError<S::Error>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.poll_pass(cx)
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), Self::Error> {
        let this = self.project();
        let units = (this.cost)(&item);
        debug_assert!(this.sink.item.is_none(), "a sink is ready before an item is sent");
        this.sink.item = Some((item, units));
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.as_mut().poll_pass(cx))?;
        self.project().inner.poll_flush(cx).map_err(PacedError::Inner)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        ready!(self.as_mut().poll_pass(cx))?;
        self.project().inner.poll_close(cx).map_err(PacedError::Inner)
    }
}

impl<S, T, C> fmt::Debug for Paced<S, T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").finish_non_exhaustive()
    }
}
