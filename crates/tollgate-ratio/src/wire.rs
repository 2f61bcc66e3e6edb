//! Bytes of reports to a tally, which `lua/ratio.lua` reads, and of its replies.
//!
//! The hashes of one shard are in one slot, and different shards in different slots. No length in a reply is trusted:
//! bytes that do not match the report are `None`.

use std::time::Duration;

use bytes::{Buf, Bytes};
use tollgate::Error;
use tollgate::deadpool_redis::redis::{Cmd, cmd};

use crate::tally::{CounterId, MAX_REPORT, MAX_SHARDS, MAX_TOTAL, MAX_UNITS, Offered, Report};

const TICKS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(60)];

const UNITS_SIZE: usize = 6;

const NEVER: u64 = MAX_TOTAL;

const OFFERED_SIZE: usize = CounterId::LENGTH + 3 * UNITS_SIZE;
const HOT_SIZE: usize = CounterId::LENGTH + 14;

pub(crate) struct ShardReport {
    keys: [String; 3],
    head: Vec<u8>,
    counters: Vec<u8>,
    places: Vec<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ShardTotals {
    pub(crate) now_us: u64,
    pub(crate) live: u64,
    pub(crate) counters: Vec<(usize, Option<[u64; 2]>)>,
    pub(crate) hot: Vec<(CounterId, [u64; 2])>,
}

impl ShardReport {
    pub(crate) fn all(prefix: &str, report: &Report) -> Result<Vec<Self>, Error> {
        let (tick, shards) = (report.tick, report.shards);
        if tick < TICKS[0] || tick > TICKS[1] || tick.subsec_nanos() % 1_000 != 0 {
            return Err(Error::invalid(format!("a tick of {tick:?} is not allowed: use 10ms to 60s, in whole µs")));
        }
        if shards == 0 || shards > MAX_SHARDS {
            return Err(Error::invalid(format!("{shards} shards are not allowed: use 1 to {MAX_SHARDS}")));
        }
        let parts: Vec<Self> = (0..shards).map(|shard| Self::new(prefix, report, shard)).collect();
        let most = parts.iter().map(|part| part.places.len()).max().unwrap_or_default();
        if most > MAX_REPORT {
            let text = format!("{most} counters of one shard are too many: at most {MAX_REPORT} are allowed");
            return Err(Error::invalid(text));
        }
        Ok(parts)
    }

    fn new(prefix: &str, report: &Report, shard: u8) -> Self {
        let tick_us = u64::try_from(report.tick.as_micros()).unwrap_or(u64::MAX);
        // Includes the number of shards, because two layouts of counters in one hash would seem to be offered too few
        // units.
        let shards = report.shards;
        let key = |place: u8| format!("{prefix}:{{ratio-{tick_us}-{shards}-{shard}}}:{place}");
        let mut part = Self { keys: [0, 1, 2].map(key), head: Vec::new(), counters: Vec::new(), places: Vec::new() };
        push(&mut part.head, tick_us, 7);
        push(&mut part.head, report.target.min(NEVER), 7);
        part.head.push(u8::from(report.live));
        for (place, offered) in report.counters.iter().enumerate() {
            if offered.id.shard(report.shards) == shard {
                part.places.push(place);
                push_offered(&mut part.counters, offered);
            }
        }
        part
    }

    pub(crate) fn without_target(mut self) -> Self {
        self.head[7..14].fill(0);
        self
    }

    /// `script` is the source for `EVAL`, or the hash for `EVALSHA`. All keys are in one slot.
    pub(crate) fn command(&self, name: &str, script: &str) -> Cmd {
        let mut call = cmd(name);
        call.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.head).arg(&self.counters);
        call
    }

    pub(crate) fn read(&self, mut reply: Bytes) -> Option<ShardTotals> {
        let now_us = reply.try_get_uint(7).ok()?;
        let live = reply.try_get_uint(4).ok()?;
        let units = |place: &usize| Some((*place, Some(read_units(&mut reply)?).filter(has_room)));
        let counters = self.places.iter().map(units).collect::<Option<_>>()?;
        let mut hot = Vec::with_capacity(reply.len() / HOT_SIZE);
        while reply.has_remaining() {
            let mut id = [0; CounterId::LENGTH];
            reply.try_copy_to_slice(&mut id).ok()?;
            hot.push((CounterId::from_bytes(id), read_units(&mut reply).filter(has_room)?));
        }
        Some(ShardTotals { now_us, live, counters, hot })
    }
}

/// Big-endian.
fn push(bytes: &mut Vec<u8>, number: u64, size: usize) {
    bytes.extend_from_slice(&number.to_be_bytes()[8 - size..]);
}

fn push_offered(bytes: &mut Vec<u8>, offered: &Offered) {
    bytes.reserve(OFFERED_SIZE);
    bytes.extend_from_slice(offered.id.as_bytes());
    for units in [offered.ordinary, offered.critical, offered.limit] {
        push(bytes, units.min(MAX_UNITS), UNITS_SIZE);
    }
}

/// The first kind is `NEVER` if there is no space for the counter.
fn read_units(reply: &mut Bytes) -> Option<[u64; 2]> {
    let [ordinary, critical] = [reply.try_get_uint(7).ok()?, reply.try_get_uint(7).ok()?];
    (ordinary <= NEVER && critical < NEVER).then_some([ordinary, critical])
}

fn has_room(units: &[u64; 2]) -> bool {
    units[0] < NEVER
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_secs(1);

    fn id(first: u8) -> CounterId {
        CounterId::from_bytes([first; CounterId::LENGTH])
    }

    fn report(counters: impl IntoIterator<Item = Offered>) -> Report {
        Report::new(TICK, 7).counters(counters)
    }

    fn only(report: &Report) -> ShardReport {
        ShardReport::all("tollgate", report).expect("the report is valid").remove(0)
    }

    fn bytes(numbers: &[(u64, usize)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (number, size) in numbers {
            push(&mut bytes, *number, *size);
        }
        bytes
    }

    #[test]
    fn what_a_script_could_not_count_is_refused() {
        let many = (0..513_u16).map(|place| {
            let mut id = [0; CounterId::LENGTH];
            id[1..3].copy_from_slice(&place.to_be_bytes());
            Offered::new(CounterId::from_bytes(id), 1, 0, 1)
        });
        for (report, text) in [
            (Report::new(Duration::from_millis(9), 0), "a tick of 9ms is not allowed: use 10ms to 60s"),
            (Report::new(Duration::ZERO, 0), "a tick of 0ns"),
            (Report::new(TICK * 61, 0), "a tick of 61s"),
            (Report::new(TICK + Duration::from_nanos(1), 0), "in whole µs"),
            (report([]).shards(0), "0 shards are not allowed: use 1 to 16"),
            (report([]).shards(17), "17 shards"),
            (report(many), "513 counters of one shard are too many: at most 512 are allowed"),
        ] {
            let error = ShardReport::all("tollgate", &report).err().expect(text);
            assert!(error.is_invalid() && error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn a_reply_has_the_totals_of_all_counters_and_of_hot_ones() {
        let part = only(&report([1, 2].map(|first| Offered::new(id(first), 1, 0, 1))));
        let head = bytes(&[(1_000_001, 7), (9, 4)]);
        let units = bytes(&[(5, 7), (6, 7), (NEVER, 7), (8, 7)]);
        let hot = [vec![3; 16], bytes(&[(NEVER - 1, 7), (0, 7)])].concat();
        let all = [&head[..], &units, &hot].concat();
        let totals = part.read(all.clone().into()).expect("it is a reply");
        let counters = vec![(0, Some([5, 6])), (1, None)];
        assert_eq!(totals, ShardTotals { now_us: 1_000_001, live: 9, counters, hot: vec![(id(3), [NEVER - 1, 0])] });
        for length in (0..all.len()).filter(|length| *length != all.len() - hot.len()) {
            assert_eq!(part.read(Bytes::copy_from_slice(&all[..length])), None, "{length} bytes");
        }
        assert_eq!(part.read([&all[..], &[0]].concat().into()), None);
    }
}
