//! A primary, and whether it is asked.

use std::fmt;
use std::time::Duration;

use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::time::Instant;

use super::address::Address;
use crate::core::Error;
use crate::core::error::Kind;
use crate::metrics::StoreHealth;
use crate::store::BreakerState;
use crate::store::breaker::{Breaker, Permit, millis};
use crate::store::outage::Outage;
use crate::store::redis::batch::Lanes;
use crate::store::redis::connections::Failure;

/// A primary. While it fails it is not asked, and the others are.
pub(super) struct Node {
    pub(super) address: Address,
    pub(super) lanes: Lanes,
    breaker: Breaker,
    health: StoreHealth,
    start: Instant,
}

impl Node {
    /// A node at an address.
    pub(super) fn new(address: Address, lanes: Lanes) -> Self {
        Self { address, lanes, breaker: Breaker::new(), health: StoreHealth::default(), start: Instant::now() }
    }

    /// Leave to make a call.
    ///
    /// # Errors
    ///
    /// If it failed too often a moment ago.
    pub(super) fn ask(&self) -> Result<Permit, Error> {
        self.breaker.ask(|| self.now()).ok_or_else(|| self.not_asked().of_one_server(self.outage()))
    }

    /// Counts a failure of those who waited and were not sent.
    pub(super) fn waited(&self) {
        if let Some(permit) = self.breaker.join() {
            self.count(permit, &"no call in time had room for what waited");
        }
    }

    pub(super) fn state(&self) -> BreakerState {
        self.breaker.state()
    }

    /// Whether the next question reaches it.
    pub(super) fn is_asked(&self) -> bool {
        self.state() == BreakerState::Closed || self.breaker.next_probe(self.now()).is_zero()
    }

    pub(super) fn outage(&self) -> Outage {
        let failing_since = self.breaker.failing_since().map(|since| self.start + Duration::from_millis(since));
        Outage { next_probe: self.breaker.next_probe(self.now()), failing_since }
    }

    pub(super) fn not_asked(&self) -> Error {
        let text = format!("the primary at {} is not asked, as it failed too often a moment ago", self.address);
        Error::new(Kind::Connection, text)
    }

    /// Learns what became of a call.
    pub(super) fn learn(&self, permit: Permit, failure: Option<&Failure>) {
        match failure {
            Some(Failure::Answered(error)) if is_of_the_slot(error) => self.answered(permit),
            Some(Failure::Unsent) => self.breaker.gave_up(permit, || self.now()),
            Some(failure) => self.count(permit, failure),
            None => self.answered(permit),
        }
    }

    fn answered(&self, permit: Permit) {
        if self.breaker.answered(permit, || self.now()) {
            self.changed(None);
        }
    }

    fn count(&self, permit: Permit, failure: &dyn fmt::Display) {
        match self.breaker.failed(permit, self.now()) {
            Some(BreakerState::Closed) => self.changed(Some(failure)),
            Some(_) => tracing::debug!(primary = %self.address, error = %failure, "the primary is still away"),
            None => {}
        }
    }

    /// Tells operators that it is not asked after a failure, or is asked again.
    fn changed(&self, failure: Option<&dyn fmt::Display>) {
        let primary = &self.address;
        if let Some(error) = failure {
            self.health.opened();
            tracing::warn!(%primary, %error, "a primary is not asked for now: it failed too often");
        } else {
            self.health.closed();
            let failed_for = Duration::from_millis(self.now().saturating_sub(self.breaker.first_failure()));
            tracing::info!(%primary, ?failed_for, "a primary decides again");
        }
    }

    fn now(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

/// Whether an error says that the node is well, and the slot or the script is not there.
fn is_of_the_slot(error: &RedisError) -> bool {
    use ServerErrorKind::{Ask, CrossSlot, Moved, NoScript, TryAgain};
    matches!(error.kind(), ErrorKind::Server(Moved | Ask | TryAgain | CrossSlot | NoScript))
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("address", &self.address).field("state", &self.state()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use deadpool_redis::redis::IntoConnectionInfo;

    use super::*;
    use crate::store::redis::batch::{Plan, Settings};
    use crate::store::redis::connections::Pools;
    use crate::store::redis::wire::Calls;

    const BUDGET: Duration = Duration::from_millis(100);

    fn node() -> Node {
        let pools = Pools { size: 1, connect_timeout: BUDGET, ..Pools::default() };
        let source = pools.of_server(pools.server(&"redis://127.0.0.1:1".into_connection_info().unwrap())).unwrap();
        let address = Address { host: "::1".to_owned(), port: 7000 };
        let settings = Settings { calls: Calls::default(), clock: None, batch_size: 1 };
        let plan = Plan { settings: Arc::new(settings), most: 1, runtime: None };
        Node::new(address, plan.to(source))
    }

    fn refused(kind: ServerErrorKind) -> Failure {
        Failure::Answered((ErrorKind::Server(kind), "as it is told").into())
    }

    /// The state after calls that failed like this.
    fn state_after(calls: u64, failure: impl Fn() -> Failure) -> BreakerState {
        let node = node();
        for _ in 0..calls {
            let permit = node.breaker.ask(|| node.now()).expect("it is asked");
            node.learn(permit, Some(&failure()));
        }
        node.state()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_cannot_decide_is_away_and_one_that_knows_better_is_not() {
        use ServerErrorKind::{Ask, BusyLoading, ClusterDown, MasterDown, Moved, NoScript, ReadOnly, TryAgain};
        for kind in [BusyLoading, ClusterDown, MasterDown, ReadOnly] {
            assert_eq!(state_after(4, || refused(kind)), BreakerState::Closed, "{kind:?}");
            assert_eq!(state_after(5, || refused(kind)), BreakerState::Open, "{kind:?}");
        }
        for kind in [Moved, Ask, TryAgain, NoScript] {
            assert_eq!(state_after(100, || refused(kind)), BreakerState::Closed, "{kind:?}");
        }
        let cut = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        assert_eq!(state_after(5, || Failure::Answered(cut())), BreakerState::Open);
        assert_eq!(state_after(100, || Failure::Unsent), BreakerState::Closed);
        let not_connected = || Failure::NotConnected(Error::new(Kind::Connection, "cannot connect"));
        assert_eq!(state_after(5, not_connected), BreakerState::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn while_it_is_not_asked_it_says_why_since_when_and_for_how_long() {
        let node = node();
        let start = Instant::now();
        for _ in 0..5 {
            assert!(node.is_asked());
            tokio::time::advance(Duration::from_millis(1)).await;
            node.learn(node.ask().unwrap(), Some(&refused(ServerErrorKind::ClusterDown)));
        }
        tokio::time::advance(Duration::from_millis(9)).await;
        let error = node.ask().expect_err("it failed too often");
        assert_eq!(error.to_string(), "the primary at [::1]:7000 is not asked, as it failed too often a moment ago");
        let Outage { next_probe, failing_since } = node.outage();
        assert_eq!((next_probe, node.is_asked()), (Duration::from_millis(41), false));
        assert_eq!(failing_since, Some(start + Duration::from_millis(1)));
    }
}
