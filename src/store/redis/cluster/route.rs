//! The way of requests to the primaries of their slots, and of those that one redirects.
//!
//! Whenever a request cannot be sent, the slots are looked up again in the background, as another primary may have them
//! by now. Errors contain the outage of the server that they come from, so that a layer's own circuit breaker does not
//! count them against the whole Cluster.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::node::Node;
use super::nodes::{Cluster, Follow};
use crate::core::error::Kind;
use crate::core::{Error, Lines};
use crate::store::BreakerState;
use crate::store::outage::Outage;
use crate::store::redis::pipeline::{Failed, Job, NoReply, Part, Refused, Settings, Settled};

/// The pause before a request is sent again some of whose keys are on either side of a slot that moves.
const SLOT_PAUSE: Duration = Duration::from_millis(10);

/// Limits how often `settlement_unsent` is logged.
static UNSENT: Lines = Lines::new();

impl Cluster {
    /// Asks the primary that has the slot of a request, and those to which it is redirected.
    ///
    /// # Errors
    ///
    /// If there is no reply in time, no primary has the slot, its circuit breaker is open, there is no runtime, or it
    /// refuses the request.
    pub(in crate::store::redis) async fn ask(self: &Arc<Self>, mut job: Box<Job>) -> Result<Part, NoReply> {
        if self.is_unknown() {
            self.find(job.timeout).await;
        }
        let (timeout, mut next) = (job.timeout, None);
        loop {
            let node = match next.take() {
                Some(node) => node,
                None => self.callable(job.slot)?,
            };
            job.permit = Some(node.acquire()?);
            let of_node = |error: Error| error.of_one_server(node.outage());
            let mut asking = node.server.ask(job)?;
            let refused = match (&mut asking).await {
                Ok(part) => return Ok(part),
                Err(Failed::Refused(refused)) => refused,
                Err(Failed::Late(error)) => return Err(NoReply { error: of_node(error), late: Some(asking) }),
                Err(Failed::Error(error)) => return Err(of_node(error).into()),
            };
            let Refused { error, cause, job: mut refused } = *refused;
            match self.follow(&node, &cause, &mut refused) {
                Follow::To(other) => next = Some(other),
                Follow::Owner => {}
                Follow::Later if Instant::now() + SLOT_PAUSE < timeout.until => {
                    sleep_until(Instant::now() + SLOT_PAUSE).await;
                }
                Follow::Later => {
                    sleep_until(timeout.until).await;
                    return Err(of_node(timeout.error()).into());
                }
                Follow::Nobody => return Err(of_node(error).into()),
            }
            job = refused;
        }
    }

    /// Returns the primary that has a slot, if it may be called.
    fn callable(self: &Arc<Self>, slot: u16) -> Result<Arc<Node>, Error> {
        let Some(owner) = self.owner(slot) else {
            self.look_again(None);
            return Err(self.error_of_slot(slot, no_primary()));
        };
        match self.breaker_error(slot) {
            Some(error) => Err(error),
            None => Ok(owner),
        }
    }

    /// Sends a settlement to the primary that has its slot, in the background. Returns what receives the result.
    ///
    /// # Errors
    ///
    /// If no primary has the slot, which is logged, or too many settlements are on their way to it.
    pub(in crate::store::redis) fn settle(
        self: &Arc<Self>,
        job: Box<Job>,
    ) -> Result<oneshot::Receiver<Settled>, Error> {
        let Some(owner) = self.owner(job.slot) else {
            self.look_again(None);
            UNSENT.log("", |more| {
                tracing::warn!(
                    code = "settlement_unsent",
                    more,
                    "a settlement was not sent: no primary of the Redis Cluster has its slot"
                );
            });
            return Err(no_primary().unsent());
        };
        let (settler, receiver) = owner.server.settler()?;
        owner.server.settle(job, settler);
        Ok(receiver)
    }

    /// Returns whether one primary has two slots, as far as is known.
    pub(in crate::store::redis) fn is_same(&self, slot: u16, other: u16) -> bool {
        let [one, other] = [slot, other].map(|slot| self.owner(slot));
        one.zip(other).is_some_and(|(one, other)| Arc::ptr_eq(&one, &other))
    }

    /// Returns how calls are made.
    pub(in crate::store::redis) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the error of a call for a slot if its primary's circuit breaker is open and no probe
    /// is due.
    pub(in crate::store::redis) fn breaker_error(self: &Arc<Self>, slot: u16) -> Option<Error> {
        let node = self.owner(slot).filter(|node| !node.is_callable())?;
        // Another one may have the slot by now.
        self.look_again(Some(node.address.clone()));
        Some(node.breaker_error().of_one_server(node.outage()))
    }

    /// Returns an error as one of the primary that has a slot. A slot without a primary counts as
    /// having failed since the store was made: requests must not be admitted, as through a short
    /// failure, for as long as that lasts.
    fn error_of_slot(&self, slot: u16, error: Error) -> Error {
        let no_node = || Outage { next_probe: Duration::ZERO, failing_since: Some(self.start) };
        error.of_one_server(self.owner(slot).map_or_else(no_node, |node| node.outage()))
    }

    /// Returns the primaries as `host:port`, sorted, and the state of each one's circuit breaker.
    pub(in crate::store::redis) fn breakers(&self) -> Vec<(String, BreakerState)> {
        let states = |node: &Arc<Node>| (node.address.to_string(), node.state());
        let mut states: Vec<_> = self.map.load().nodes().iter().map(states).collect();
        states.sort_unstable_by(|(address, _), (other, _)| address.cmp(other));
        states
    }
}

/// Returns the error of a slot that no known primary has.
fn no_primary() -> Error {
    Error::new(Kind::Connection, "no primary of the Redis Cluster has this key's slot")
}
