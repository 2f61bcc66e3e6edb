//! Where nodes listen, as redirections and `CLUSTER SLOTS` say it.

use std::fmt;
use std::ops::RangeInclusive;

use deadpool_redis::redis::Value;

use super::slot::SLOTS;

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// Reads `host:port`, as redirections have it; without a host it is the one of who answered.
    pub(super) fn read(text: &str, answering: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::named(host, port.parse().ok()?, answering)
    }

    fn named(host: &str, port: u16, answering: &Self) -> Option<Self> {
        let host = match host {
            "?" => return None,
            "" => &answering.host,
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

/// Slots, and the address of their primary.
pub(super) type Range = (RangeInclusive<u16>, Address);

/// Reads the answer to `CLUSTER SLOTS`; `None` if it is no such thing.
pub(super) fn read_ranges(slots: &Value, answering: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = slots else { return None };
    // One whose primary is not known has none for now.
    Some(ranges.iter().filter_map(|range| read_range(range, answering)).collect())
}

fn read_range(range: &Value, answering: &Address) -> Option<Range> {
    let Value::Array(range) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = range.as_slice() else { return None };
    let [host, Value::Int(port), ..] = primary.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => str::from_utf8(host).ok()?,
        Value::Nil => "",
        _ => return None,
    };
    let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
    let address = Address::named(host, u16::try_from(*port).ok()?, answering)?;
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
        let read = read_ranges(&slots, &address("asked", 7)).unwrap();
        assert_eq!(read, [(0..=5, address("10.0.0.1", 1)), (6..=16_383, address("node.example", 2))]);
    }

    #[test]
    fn a_node_that_does_not_know_its_host_is_where_it_was_asked() {
        for host in [Value::Nil, text("")] {
            let read = read_ranges(&Value::Array(vec![range(0, 0, host, 1)]), &address("asked", 7)).unwrap();
            assert_eq!(read, [(0..=0, address("asked", 1))]);
        }
        assert_eq!(Address::read(":6380", &address("asked", 7)), Some(address("asked", 6380)));
        assert_eq!(Address::read("::1:6380", &address("asked", 7)), Some(address("::1", 6380)));
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
        assert_eq!(read_ranges(&Value::Array(odd.into()), &address("asked", 7)), Some(vec![]));
        assert_eq!(read_ranges(&Value::Okay, &address("asked", 7)), None);
        assert_eq!(Address::read("nothing", &address("asked", 7)), None);
        assert_eq!(Address::read("?:6380", &address("asked", 7)), None);
    }
}
