//! What calls ask, and what becomes of that when nobody learns it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection::Connection;
use super::state::State;
use crate::ledger::{Wish, wishes};

/// Connections to a node without a decision on any of them, while all may be well.
const MANY: u32 = 8;

/// A key and what is asked of it.
pub(super) type Wishes = Vec<(Vec<u8>, Wish)>;

/// What takes longer may be given up before it is sent, or answered.
const LONG: Duration = Duration::from_secs(5);

/// What a command asks, if it is one of tollgate's calls.
pub(super) fn of_command(command: &[Bytes]) -> Wishes {
    let [name, _, count, rest @ ..] = command else { return Vec::new() };
    let count = std::str::from_utf8(count).ok().and_then(|count| count.parse::<usize>().ok());
    let Some((keys, [_, packed])) = count.and_then(|count| rest.split_at_checked(count)) else { return Vec::new() };
    if !matches!(&name[..], b"EVALSHA" | b"EVAL" | b"FCALL") || is_report(command) {
        return Vec::new();
    }
    wishes(keys, packed).into_iter().map(|(key, wish)| (key.to_vec(), wish)).collect()
}

/// Whether a command is a report to a tally.
pub(super) fn is_report(command: &[Bytes]) -> bool {
    command.get(3).is_some_and(|key| key.windows(7).any(|part| part == b"{ratio-"))
}

impl State {
    /// These did not run, and nobody asks for them again.
    pub(super) fn never_ran(&mut self, wishes: &Wishes) {
        for (key, wish) in wishes {
            match wish {
                Wish::Take(_) | Wish::Ban => continue,
                Wish::Refund(units) => *self.lost.entry(key.clone()).or_default() += i128::from(*units),
                // It was held up, which is known of whom it is from.
                Wish::Charge(_) | Wish::Renew(_) | Wish::Reset => {}
            }
            self.is_lossy = true;
        }
    }

    /// These ran, and nobody learns it.
    pub(super) fn unanswered(&mut self, wishes: &Wishes) {
        for (_, wish) in wishes {
            let Wish::Take(cost) = *wish else { continue };
            for record in self.records.iter_mut().filter(|record| record.cost == cost) {
                record.is_excused = true;
            }
            self.is_lossy = true;
        }
    }

    /// Another connection is made to a node: returns its number, and what ends it. Where many are made in
    /// vain, settlements are given up.
    pub(super) fn connects(&mut self, process: usize, node: usize) -> (u64, Arc<Notify>) {
        self.last_connection += 1;
        self.nodes[node].connections += 1;
        let (number, connection) = (self.last_connection, Connection::new(process, node, self.nodes[node].connections));
        let cut = Arc::clone(&connection.cut);
        self.connections.insert(number, connection);
        self.nodes[node].attempts += 1;
        if self.nodes[node].attempts > MANY {
            self.excuse();
        }
        self.trace.say(format_args!("connection {number} to node {node}"));
        (number, cut)
    }

    /// These run now, which may be long after they were asked.
    pub(super) fn runs(&mut self, wishes: &Wishes) {
        let now = Instant::now();
        let is_old = |cost: u64| self.records.iter().any(|record| record.cost == cost && now - record.began > LONG);
        if wishes.iter().any(|(_, wish)| matches!(wish, Wish::Take(cost) if is_old(*cost))) {
            self.excuse();
        }
    }
}
