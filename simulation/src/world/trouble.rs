//! When something was in the way, and whom it may have held up.

use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;
use super::record::Record;
use super::server::Server;
use super::state::State;
use crate::server::Faults;

/// So long after something was in the way it still may hold somebody up: breakers ask again, and connections
/// that are of no use any more are noticed.
const AFTER: Duration = Duration::from_secs(2);

impl State {
    /// Something is in the way, up to this time at least. It holds up those who are under way.
    pub(super) fn is_troubled_until(&mut self, until: Instant) {
        let now = Instant::now();
        self.troubled_until = self.troubled_until.max(Some(until));
        let is_under_way = |record: &&mut Record| record.ended.is_none_or(|ended| now - ended < AFTER);
        self.records.iter_mut().filter(is_under_way).for_each(|record| record.is_held_up = true);
    }

    /// Whether nothing is in the way, and has not been for a while.
    pub(super) fn is_calm(&self) -> bool {
        let is_over = self.troubled_until.is_none_or(|until| until + AFTER < Instant::now());
        is_over && !self.is_troubled()
    }

    /// Whether something is in the way.
    pub(super) fn is_troubled(&self) -> bool {
        self.nodes.iter().any(Server::is_troubled)
            || self.connections.values().any(Connection::is_troubled)
            || self.password.0 != self.password.1
            || self.nodes.len() > 1 && self.slots().moves().next().is_some()
    }
}

impl Server {
    pub(super) fn is_troubled(&self) -> bool {
        let Faults { read_only, loading, out_of_memory, busy, cluster_down, password: _ } = &self.node.fault;
        let refuses = read_only.is_some() || *loading || *out_of_memory || *busy || *cluster_down;
        let is_frozen = self.frozen_until.is_some_and(|until| until > Instant::now());
        refuses || is_frozen || !self.is_up && !self.is_lost || self.slow_ms > 0 || !self.mishaps.is_empty()
    }
}
