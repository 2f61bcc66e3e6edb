//! Reports to tallies: what was offered in each tick, as the calls show that the servers ran.
//!
//! Written from what a tally promises: a report counts in the tick that it is for if that is the last one, nowhere if it
//! is older, and else in the current one; what is told are the sums of the last tick. There is one list of ticks, without
//! an end. What servers forgot, and clocks that step, make sums of the ticks until then upper bounds.

use std::collections::{BTreeMap, BTreeSet};

use crate::server::Call;

/// The name of a counter in a report.
pub type Name = [u8; 16];

/// Units of both kinds.
pub type Units = [u64; 2];

/// A counter that has no room has so many units.
const NO_ROOM: u64 = 1 << 52;

/// One counter of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: Name,
    /// What it was offered.
    pub units: Units,
    /// What a tick admits.
    pub limit: u64,
}

/// What a call reports to one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Of how many shards, and which.
    pub shard: (u8, u8),
    /// The length of a tick, in µs.
    pub tick_us: u64,
    /// The tick that it is for, or 0.
    pub target: u64,
    /// Whether the process counts as live.
    pub live: bool,
    /// What was offered.
    pub parts: Vec<Part>,
}

/// What a call is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The server's time, in µs.
    pub now_us: u64,
    /// Processes that were live in the last tick.
    pub live: u64,
    /// The totals of the counters of the report.
    pub totals: Vec<Units>,
    /// Those of hot counters.
    pub hot: Vec<(Name, Units)>,
}

/// A tick of one shard.
#[derive(Clone, Debug, Default)]
struct Tick {
    live: u64,
    units: BTreeMap<Name, Units>,
    hot: BTreeSet<Name>,
}

/// The ticks of one shard.
#[derive(Debug, Default)]
struct Shard {
    ticks: BTreeMap<u64, Tick>,
    /// Up to this tick, less may be there than was reported.
    doubted: Option<u64>,
}

/// All that was reported.
#[derive(Debug, Default)]
pub struct Reports(BTreeMap<Vec<u8>, Shard>);

impl Reports {
    /// Notes a call; returns what was sent, the tick that it counts in, and what was told.
    ///
    /// # Errors
    ///
    /// What is wrong with the answer, if it is not what a tally promises.
    pub fn ran(&mut self, call: &Call) -> Result<(Sent, Option<u64>, Told), String> {
        let sent = sent(call)?;
        let told = told(call, &sent)?;
        let shard = self.0.entry(shard_of(&call.keys[0]).to_vec()).or_default();
        let current = call.at_us / sent.tick_us;
        let into = match sent.target {
            0 => Some(current),
            target if target + 1 == current => Some(target),
            target if target < current => None,
            _ => Some(current),
        };
        if let Some(into) = into {
            shard.add(into, &sent);
        }
        let found = if told.now_us == call.at_us { shard.wrong(current, into, (&sent, &told)) } else { Some("time") };
        match found {
            None => Ok((sent, into, told)),
            Some(what) => {
                Err(format!("the {what} of a report is wrong: {sent:?} in tick {current}, {told:?}; {shard:?}"))
            }
        }
    }

    /// Notes that a key is gone, if it is that of a tick.
    pub fn forgot(&mut self, key: &[u8]) {
        if let Some(shard) = self.0.get_mut(shard_of(key)) {
            shard.doubted = shard.ticks.keys().next_back().copied();
        }
    }

    /// Notes that the clocks of the servers step.
    pub fn steps(&mut self) {
        for shard in self.0.values_mut() {
            shard.doubted = shard.ticks.keys().next_back().copied();
        }
    }
}

impl Shard {
    fn add(&mut self, into: u64, sent: &Sent) {
        let tick = self.ticks.entry(into).or_default();
        tick.live += u64::from(sent.live);
        for part in &sent.parts {
            let units = tick.units.entry(part.name).or_default();
            *units = [units[0] + part.units[0], units[1] + part.units[1]];
        }
    }

    /// Whether sums of a tick are exact.
    fn is_sure(&self, tick: u64) -> bool {
        self.doubted.is_none_or(|doubted| tick > doubted)
    }

    /// What of an answer is wrong.
    fn wrong(&mut self, current: u64, into: Option<u64>, (sent, told): (&Sent, &Told)) -> Option<&'static str> {
        let (last, none) = (current - 1, Tick::default());
        let is_sure = self.is_sure(last);
        let is_right = |told: u64, due: u64| if is_sure { told == due } else { told <= due };
        let of_last = self.ticks.get(&last).unwrap_or(&none);
        let due = |name: &Name| of_last.units.get(name).copied().unwrap_or_default();
        let are_right = |name: &Name, units: &Units| (0..2).all(|kind| is_right(units[kind], due(name)[kind]));
        if !is_right(told.live, of_last.live) {
            return Some("number of live processes");
        }
        let mut all = sent.parts.iter().map(|part| &part.name).zip(&told.totals);
        if !all.all(|(name, units)| are_right(name, units)) || told.hot.iter().any(|(name, of)| !are_right(name, of)) {
            return Some("sum");
        }
        let is_hot = |(part, units): &(&Part, &Units)| 2 * (units[0] + units[1]) >= part.limit;
        let hot: Vec<Name> = sent.parts.iter().zip(&told.totals).filter(is_hot).map(|(part, _)| part.name).collect();
        if let Some(tick) = into.and_then(|into| self.ticks.get_mut(&into)) {
            tick.hot.extend(hot);
        }
        // What is too late lists nothing, and is told what the current tick lists.
        let lists = [into.unwrap_or(current), last];
        let due: BTreeSet<&Name> =
            lists.iter().filter_map(|tick| self.ticks.get(tick)).flat_map(|tick| &tick.hot).collect();
        let listed: BTreeSet<&Name> = told.hot.iter().map(|(name, _)| name).collect();
        let is_all = listed == due || !lists.iter().all(|tick| self.is_sure(*tick)) && listed.is_subset(&due);
        (!is_all || listed.len() < told.hot.len()).then_some("list of hot counters")
    }
}

/// The name of a shard: that of its keys without the place of a tick.
fn shard_of(key: &[u8]) -> &[u8] {
    key.iter().rposition(|byte| *byte == b':').map_or(key, |end| &key[..end])
}

/// Reads what a call reports: see `lua/ratio.lua`.
fn sent(call: &Call) -> Result<Sent, String> {
    let wrong = |what: &str| format!("{what} of a report: {:?}", call.args);
    let [head, packed] = &*call.args else { return Err(wrong("arguments")) };
    let (mut head, mut packed) = (&**head, &**packed);
    let (tick_us, target, live) = (number(&mut head, 7)?, number(&mut head, 7)?, number(&mut head, 1)?);
    let mut parts = Vec::new();
    while !packed.is_empty() {
        let name = name(&mut packed)?;
        let [ordinary, critical, limit] = [(); 3].map(|()| number(&mut packed, 6));
        parts.push(Part { name, units: [ordinary?, critical?], limit: limit? });
    }
    let keys = str::from_utf8(shard_of(&call.keys[0])).map_err(|_| wrong("keys"))?;
    let numbers = keys.split_once("{ratio-").and_then(|(_, rest)| rest.strip_suffix('}'));
    let numbers: Vec<u64> = numbers.unwrap_or_default().split('-').filter_map(|number| number.parse().ok()).collect();
    let [of_key, shards, shard] = *numbers else { return Err(wrong("keys")) };
    let places = call.keys.iter().enumerate().all(|(place, key)| **key == *format!("{keys}:{place}").as_bytes());
    if of_key != tick_us || !places || call.keys.len() != 3 || live > 1 || !head.is_empty() || shard >= shards {
        return Err(wrong("keys or head"));
    }
    let is_here = |part: &Part| u64::from(part.name[0]) % shards == shard;
    if !parts.iter().all(is_here) {
        return Err(wrong("counters of another shard"));
    }
    let shard = [shards, shard].map(|number| u8::try_from(number).unwrap_or(u8::MAX));
    Ok(Sent { shard: (shard[0], shard[1]), tick_us, target, live: live == 1, parts })
}

fn told(call: &Call, sent: &Sent) -> Result<Told, String> {
    let mut reply = &*call.reply;
    let (now_us, live) = (number(&mut reply, 7)?, number(&mut reply, 4)?);
    let totals = sent.parts.iter().map(|_| units(&mut reply)).collect::<Result<Vec<_>, _>>()?;
    let mut hot = Vec::new();
    while !reply.is_empty() {
        hot.push((name(&mut reply)?, units(&mut reply)?));
    }
    Ok(Told { now_us, live, totals, hot })
}

fn units(bytes: &mut &[u8]) -> Result<Units, String> {
    let units = [number(bytes, 7)?, number(bytes, 7)?];
    // Never so many are reported here.
    if units[0] >= NO_ROOM { Err("a counter has no room".to_owned()) } else { Ok(units) }
}

fn name(bytes: &mut &[u8]) -> Result<Name, String> {
    let (name, rest) = bytes.split_first_chunk().ok_or("a name is cut off")?;
    *bytes = rest;
    Ok(*name)
}

fn number(bytes: &mut &[u8], size: usize) -> Result<u64, String> {
    let (number, rest) = bytes.split_at_checked(size).ok_or("a number is cut off")?;
    *bytes = rest;
    Ok(number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
