//! Slots: the hash of a key, and the map from slots to primaries.
//!
//! Every decision reads the map without a lock, and a change replaces the whole map. The map may be outdated at any
//! time. A wrong entry costs one redirection.

use std::ops::RangeInclusive;
use std::sync::Arc;

use deadpool_redis::redis::Value;

use super::node::{Address, Node};

#[derive(Clone)]
pub(super) struct Map {
    /// Distinct by address. Includes nodes to which slots are being moved.
    nodes: Vec<Arc<Node>>,
    owners: Box<[Option<u16>]>,
}

impl Map {
    pub(super) fn empty() -> Self {
        Self { nodes: Vec::new(), owners: vec![None; usize::from(SLOTS)].into() }
    }

    pub(super) fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// `None` if no refresh has found a primary, or the Cluster has none for the slot.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let place = self.owners.get(usize::from(slot)).copied().flatten()?;
        self.nodes.get(usize::from(place)).cloned()
    }

    pub(super) fn node(&self, address: &Address) -> Option<Arc<Node>> {
        self.nodes.iter().find(|node| node.primary.address == *address).cloned()
    }

    /// Ignores a range beyond the last slot.
    pub(super) fn give(&mut self, slots: RangeInclusive<u16>, node: &Arc<Node>) {
        let place = self.keep(node);
        let (first, last) = (usize::from(*slots.start()), usize::from(*slots.end()));
        if let (Some(owners), Ok(place)) = (self.owners.get_mut(first..=last), u16::try_from(place)) {
            owners.fill(Some(place));
        }
    }

    pub(super) fn keep(&mut self, node: &Arc<Node>) -> usize {
        let known = self.nodes.iter().position(|known| known.primary.address == node.primary.address);
        known.unwrap_or_else(|| {
            self.nodes.push(Arc::clone(node));
            self.nodes.len() - 1
        })
    }
}

pub(super) type Range = (RangeInclusive<u16>, Address);

/// Decodes a reply to `CLUSTER SLOTS` by `from`. Ignores malformed elements, because the reply is not trusted.
pub(super) fn read_ranges(slots: &Value, from: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = slots else { return None };
    // A range without a known primary is left out.
    Some(ranges.iter().filter_map(|range| read_range(range, from)).collect())
}

fn read_range(range: &Value, from: &Address) -> Option<Range> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = range.as_slice() else { return None };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => str::from_utf8(host).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let address = Address::named(host, u16::try_from(*port).ok()?, from)?;
    (last < SLOTS).then_some((first..=last, address))
}

const SLOTS: u16 = 16_384;

/// CRC-16/XMODEM of each byte: polynomial 0x1021, initial value 0, not reflected.
const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte << 8, 0);
        while bit < 8 {
            sum = if sum & 0x8000 == 0 { sum << 1 } else { sum << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = sum;
        byte += 1;
    }
    table
}

/// CRC-16 of the hash tag, modulo 16,384, by the [Redis Cluster
/// specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/).
pub(in crate::store::redis) fn slot_of(redis_key: &[u8]) -> u16 {
    let tag = tag(redis_key).unwrap_or(redis_key);
    let sum = tag.iter().fold(0, |sum: u16, byte| sum << 8 ^ TABLE[usize::from(sum >> 8 ^ u16::from(*byte))]);
    sum % SLOTS
}

/// Returns the text between the first `{` and the next `}`. `None` if empty: then the whole key is hashed.
fn tag(redis_key: &[u8]) -> Option<&[u8]> {
    let behind = redis_key.iter().position(|byte| *byte == b'{')? + 1;
    let length = redis_key[behind..].iter().position(|byte| *byte == b'}')?;
    (length > 0).then(|| &redis_key[behind..behind + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let replica = Value::Array(vec![text("10.0.0.9"), Value::Int(9), text("id")]);
        Value::Array(vec![
            Value::Int(first),
            Value::Int(last),
            Value::Array(vec![host, Value::Int(port), text("id")]),
            replica,
        ])
    }

    fn address(host: &str, port: u16) -> Address {
        Address { host: host.to_owned(), port }
    }

    #[test]
    fn ranges_are_read_with_their_primaries_and_a_node_without_a_host_is_where_it_was_asked() {
        for (host, found) in [(text("10.0.0.1"), "10.0.0.1"), (Value::Nil, "node"), (text(""), "node")] {
            let slots = Value::Array(vec![range(0, 5, host, 1), range(6, 16_383, text("node.example"), 2)]);
            let read = read_ranges(&slots, &address("node", 7)).unwrap();
            assert_eq!(read, [(0..=5, address(found, 1)), (6..=16_383, address("node.example", 2))]);
        }
        assert_eq!(Address::read(":6380", &address("node", 7)), Some(address("node", 6380)));
        assert_eq!(Address::read("::1:6380", &address("node", 7)), Some(address("::1", 6380)));
    }

    #[test]
    fn what_is_no_range_is_left_out() {
        let odd = [
            range(0, 16_384, text("a"), 1),
            range(-1, 4, text("a"), 1),
            range(0, 4, text("a"), 65_536),
            range(0, 4, text("?"), 1),
            range(0, 4, Value::Int(5), 1),
            Value::Array(vec![]),
            Value::Nil,
        ];
        assert_eq!(read_ranges(&Value::Array(odd.into()), &address("node", 7)), Some(vec![]));
        assert_eq!(read_ranges(&Value::Okay, &address("node", 7)), None);
        assert_eq!(Address::read("nothing", &address("node", 7)), None);
        assert_eq!(Address::read("?:6380", &address("node", 7)), None);
    }

    #[test]
    fn keys_have_the_slots_that_redis_gives_them() {
        // As CLUSTER KEYSLOT replies.
        for (key, slot) in [("123456789", 12_739), ("", 0), ("a{foo}b{bar}", 12_182), ("a{hello}{bar}", 866)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert!(["{}foo", "{foo"].iter().all(|key| slot_of(key.as_bytes()) != 12_182), "that is no hash tag");
    }
}
