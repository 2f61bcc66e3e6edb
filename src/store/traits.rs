//! The trait every store implements, and every store around a store.

use std::sync::Arc;
use std::time::Duration;

use super::{Answer, Applied, Change, Check, Counter, Deadline, Decided, Receipt, Requirement, Settlement, Settling};
use crate::core::Error;

/// Decides whether requests may take what they cost, and keeps what was taken.
///
/// A store that combines calls, leases units, remembers refusals or falls back on another is a
/// store around a store: it implements this trait and asks an inner one. Receipts name the store
/// that made the decision, so a wrapper knows whom to hand them to.
pub trait Store: Send + Sync + 'static {
    /// Decides all `checks` as one: every enforced check fits and all is taken, or nothing is.
    ///
    /// A decision whose source is [`Store`](crate::Source::Store) tells a layer that the store works;
    /// of any other it learns nothing, so a store that answers without its server implements
    /// [`probe`](Self::probe) too.
    ///
    /// A store with a [budget](Self::budget) answers by the end of it, or by the deadline if that is
    /// earlier: with an error if it cannot tell. A store without one may leave the deadline aside.
    ///
    /// # Errors
    ///
    /// If no decision could be made. After several, layers do not ask for a moment: see
    /// [`OnFailure`](crate::OnFailure). Errors that are [invalid](Error::is_invalid) do not count. What
    /// was asked is never asked twice, but may have been taken all the same: if the connection was lost, it
    /// stays taken; if the time was over, it is given back when the answer comes after all, by a store that
    /// can do so, as nobody counted on it. One that a layer's own timer ends, as the store has no budget, is
    /// dropped.
    ///
    /// # Cancellation
    ///
    /// Dropping a pending answer is safe at any point: it never affects the decisions of others.
    /// If the decision was allowed, its units stay taken and its slots are released: a client that goes
    /// away was served for all the store knows.
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>>;

    /// Decides as [`decide`](Self::decide) does, and asks the server whatever this process could answer
    /// by itself.
    ///
    /// A layer whose store failed finds out with the decision of a request whether it is back. An answer
    /// from memory would not tell, and for a key in heavy use there may be no other: so a store around
    /// a store that answers by itself has to pass this on to the inner one. By default it is `decide`.
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    fn probe(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        self.decide(checks, deadline)
    }

    /// Ends a decision: releases its slots and makes `changes` to what it took. Returns what became of
    /// each, in their order.
    ///
    /// Never blocks and may be called from `Drop`; what has to be sent is sent in the background,
    /// once. A receipt of another store is ignored. The answer comes in a bounded time, even if only to say
    /// that it is not known: requests that wait for it are kept until then.
    ///
    /// # Errors
    ///
    /// If the store did not say what became of the changes: they may have been made or not.
    ///
    /// # Cancellation
    ///
    /// The changes are made whether or not the answer is waited for.
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling;

    /// Changes a counter outside any decision: a refund by support staff, a charge found later.
    ///
    /// # Errors
    ///
    /// If the store could not do it, or did not say so in time.
    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>>;

    /// Forgets a counter, so that its key starts anew.
    ///
    /// # Errors
    ///
    /// If the store could not do it, or did not say so in time.
    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>>;

    /// The time in which every decision is answered, if the store sees to that by itself.
    ///
    /// Unless a layer is given a [budget](crate::RateLimitLayer::budget) of its own, it is this one.
    /// If the layer's is shorter, each decision gets a [deadline](Self::decide), which a store with a budget
    /// keeps as well. Without one, which is the default, the layer bounds what has to be waited for by a
    /// timer of its own.
    fn budget(&self) -> Option<Duration> {
        None
    }

    /// The refusal of `checks`, if it is known without asking anyone. Takes nothing.
    ///
    /// Layers call it before they look keys or quotas up for a request, and look at its checks (with a cost
    /// of 0) if there is no answer. By default there is none. A store around a store that decides all
    /// by the inner one returns the inner one's.
    fn recall(&self, checks: &[Check]) -> Option<Decided> {
        let _ = checks;
        None
    }

    /// Whether the store can do all that policies of one layer ask of it, one requirement a policy.
    ///
    /// It is asked when policies are given to a layer or limiter, and answers at once. By default, and
    /// in most stores, all is supported. A store around a store asks the inner one.
    ///
    /// # Errors
    ///
    /// If it cannot: the message names the policy, and what to change.
    fn supports(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
        let _ = requirements;
        Ok(())
    }
}

/// What a pointer to a store does is what the store does.
macro_rules! by_pointer {
    ($($pointer:ident),+) => {$(
        impl<S: Store + ?Sized> Store for $pointer<S> {
            fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
                (**self).decide(checks, deadline)
            }

            fn probe(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
                (**self).probe(checks, deadline)
            }

            fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
                (**self).settle(receipt, changes)
            }

            fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
                (**self).adjust(counter, change)
            }

            fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
                (**self).reset(counter)
            }

            fn budget(&self) -> Option<Duration> {
                (**self).budget()
            }

            fn recall(&self, checks: &[Check]) -> Option<Decided> {
                (**self).recall(checks)
            }

            fn supports(&self, requirements: &[Requirement<'_>]) -> Result<(), Error> {
                (**self).supports(requirements)
            }
        }
    )+};
}

by_pointer!(Arc, Box);
