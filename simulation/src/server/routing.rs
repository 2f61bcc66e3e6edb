//! Whether a command is for this node of a Cluster.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::data::Data;
use super::fault::texts::{CROSS_SLOT, NOT_SERVED, TRY_AGAIN};
use super::node::keys_and_args;
use super::reply::Reply;
use super::slots::{SlotTable, slot_of};
use super::table::{Keys, Spec};

/// A node's part of a Cluster.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) slots: Arc<Mutex<SlotTable>>,
    /// In the table.
    pub(super) number: u16,
}

/// The keys of a command, which has as many words as its kind needs.
pub(super) fn keys_of<'a>(spec: &Spec, words: &'a [&'a [u8]]) -> &'a [&'a [u8]] {
    match spec.keys {
        Keys::None => &[],
        Keys::First => &words[1..2],
        Keys::All => &words[1..],
        Keys::Counted => keys_and_args(&words[2..]).map_or(&[], |(keys, _)| keys),
    }
}

impl Place {
    pub(super) fn new(slots: Arc<Mutex<SlotTable>>, address: &str) -> Self {
        let number = slots.lock().unwrap_or_else(PoisonError::into_inner).node(address);
        Self { slots, number }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, SlotTable> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a command about some keys is not for this node; `asking`: it comes behind `ASKING`.
    pub(super) fn refuse(&self, keys: &[&[u8]], asking: bool, data: &mut Data, now_us: u64) -> Option<String> {
        let slot = slot_of(keys.first()?);
        let slots = self.lock();
        let Some(owner) = slots.owner(slot) else { return Some(NOT_SERVED.to_owned()) };
        if keys[1..].iter().any(|key| slot_of(key) != slot) {
            return Some(CROSS_SLOT.to_owned());
        }
        let destination = slots.destination(slot);
        if owner == self.number {
            let here = destination.map(|_| here(keys, data, now_us));
            return match (here, destination) {
                (Some(0), Some(to)) => Some(format!("ASK {slot} {}", slots.address(to))),
                (Some(here), _) if here < keys.len() => Some(TRY_AGAIN.to_owned()),
                _ => None,
            };
        }
        if asking && destination == Some(self.number) {
            let several = keys.iter().any(|key| *key != keys[0]);
            return (several && here(keys, data, now_us) < keys.len()).then(|| TRY_AGAIN.to_owned());
        }
        Some(format!("MOVED {slot} {}", slots.address(owner)))
    }

    /// The answer to `CLUSTER SLOTS`.
    pub(super) fn ranges(&self) -> Reply {
        let slots = self.lock();
        let ranges = slots.ranges().into_iter().map(|(first, last, node)| {
            Reply::Array(vec![Reply::Integer(first.into()), Reply::Integer(last.into()), described(&slots, node)])
        });
        Reply::Array(ranges.collect())
    }
}

/// How many of the keys are there.
fn here(keys: &[&[u8]], data: &mut Data, now_us: u64) -> usize {
    keys.iter().filter(|key| data.get(key, now_us).is_some()).count()
}

fn described(slots: &SlotTable, node: u16) -> Reply {
    let address = slots.address(node);
    let (host, port) = address.rsplit_once(':').unwrap_or((address, "0"));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let id = sha1_smol::Sha1::from(address).digest().to_string();
    let port = Reply::Integer(port.parse().unwrap_or_default());
    Reply::Array(vec![Reply::text(host), port, Reply::text(id), Reply::Array(Vec::new())])
}
