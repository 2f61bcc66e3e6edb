//! Calls that find their node: a slot may be with another one by now.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use super::super::patience::{Failure, Patience, is_of_the_connection};
use super::super::script::{Program, Way};
use super::map::Address;
use super::node::Node;
use super::nodes::Cluster;
use crate::Error;
use crate::error::Kind;

/// How often a call follows a redirection: nodes that disagree do not send it to and fro for long.
const MOST_HOPS: usize = 8;

/// Between two calls whose keys are on their way to another node.
const PAUSE: Duration = Duration::from_millis(10);

/// Some of the keys are here, and some are not.
const TRY_AGAIN: ErrorKind = ErrorKind::Server(ServerErrorKind::TryAgain);

/// Where a call goes.
struct Route {
    node: Arc<Node>,
    way: Way,
}

impl Cluster {
    /// Makes a call whose keys are in a slot. It is made again only after an answer that says it was
    /// not done: by a node that has not the slot, or not the script.
    pub(in crate::store::redis) async fn call(
        self: &Arc<Self>,
        slot: u16,
        patience: Patience,
        program: &Program,
        call: &Cmd,
    ) -> Result<Value, Failure> {
        if self.is_unknown() {
            // Boxed, as it is rare.
            Box::pin(self.find(patience)).await;
        }
        let mut route = self.owned(slot)?;
        let mut hops = 0;
        loop {
            let Route { node, way } = &route;
            let asked = node.ask(patience, async |connection| program.call(connection, call, *way).await);
            let failure = match asked.await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            // Keys on their way are waited for as long as the budget lasts.
            hops = if has_to_wait(&failure) { 0 } else { hops + 1 };
            let next = if hops < MOST_HOPS { self.next(slot, &route.node, &failure, patience).await } else { None };
            route = next.ok_or(failure)?;
        }
    }

    fn owned(self: &Arc<Self>, slot: u16) -> Result<Route, Failure> {
        let owner = self.owner(slot).ok_or_else(|| {
            self.look_again(None);
            Failure::NotConnected(Error::new(Kind::Connection, "no primary of the Redis Cluster has this key's slot"))
        });
        owner.map(|node| Route { node, way: Way::Plain })
    }

    /// Where a call goes that was not done; `None` if it may have been, or is not to be made again.
    async fn next(
        self: &Arc<Self>,
        slot: u16,
        node: &Arc<Node>,
        failure: &Failure,
        patience: Patience,
    ) -> Option<Route> {
        let Failure::Answered(error) = failure else {
            self.look_again(Some(node.address.clone()));
            return None;
        };
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => {
                let node = self.named(error, node)?;
                self.moved(slot, &node);
                self.look_again(None);
                Some(Route { node, way: Way::Plain })
            }
            ErrorKind::Server(ServerErrorKind::Ask) => {
                let node = self.named(error, node)?;
                self.keep(&node);
                Some(Route { node, way: Way::Asking })
            }
            TRY_AGAIN if Instant::now() + PAUSE < patience.until => {
                tokio::time::sleep(PAUSE).await;
                self.owned(slot).ok()
            }
            kind => {
                if is_down(kind) || is_of_the_connection(error) {
                    self.look_again(Some(node.address.clone()));
                }
                None
            }
        }
    }

    /// The node that a redirection names.
    fn named(&self, redirection: &RedisError, answering: &Node) -> Option<Arc<Node>> {
        let (address, _) = redirection.redirect_node()?;
        self.node(&Address::read(address, &answering.address)?).ok()
    }
}

fn has_to_wait(failure: &Failure) -> bool {
    matches!(failure, Failure::Answered(error) if error.kind() == TRY_AGAIN)
}

fn is_down(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Server(ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown))
}
