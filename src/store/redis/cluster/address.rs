//! Where nodes listen, as redirections and `CLUSTER SLOTS` have it.
//!
//! Text and replies of servers come in; addresses and ranges of slots go out. What a node sends is
//! not trusted to be well-formed: a range that is none is left out, as is one whose primary is not
//! known, and the others still count. The node that replied gives the host where a reply has none.

use std::fmt;
use std::ops::RangeInclusive;

use deadpool_redis::redis::Value;

use super::slot::SLOTS;

/// Where a node listens. Nodes are identified by it: one that changes its address is another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// A name, or an address without brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Reads `host:port`, as redirections have it. Without a host it is that of the node that
    /// replied. Returns `None` if it is no address, or the host is `?`: the node does not know it.
    pub(super) fn read(text: &str, from: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::named(host, port.parse().ok()?, from)
    }

    /// Returns the address of a host and a port, as a node names them.
    fn named(host: &str, port: u16, from: &Self) -> Option<Self> {
        let host = match host {
            "?" => return None,
            "" => &from.host,
            host => host.trim_start_matches('[').trim_end_matches(']'),
        };
        Some(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Slots, and the address of the primary that has them.
pub(super) type Range = (RangeInclusive<u16>, Address);

/// Reads the reply to `CLUSTER SLOTS`, which was received from `from`. Returns `None` if it is
/// no array; elements of it that are no ranges are left out.
pub(super) fn read_ranges(slots: &Value, from: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = slots else { return None };
    // One whose primary is not known has none for now.
    Some(ranges.iter().filter_map(|range| read_range(range, from)).collect())
}

/// Reads one range: its first and last slot, and its primary, behind which the replicas stand.
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
    fn ranges_are_read_with_their_primaries() {
        let slots = Value::Array(vec![range(0, 5, text("10.0.0.1"), 1), range(6, 16_383, text("node.example"), 2)]);
        let read = read_ranges(&slots, &address("node", 7)).unwrap();
        assert_eq!(read, [(0..=5, address("10.0.0.1", 1)), (6..=16_383, address("node.example", 2))]);
    }

    #[test]
    fn a_node_that_does_not_know_its_host_is_where_it_was_asked() {
        for host in [Value::Nil, text("")] {
            let read = read_ranges(&Value::Array(vec![range(0, 0, host, 1)]), &address("node", 7)).unwrap();
            assert_eq!(read, [(0..=0, address("node", 1))]);
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
}
