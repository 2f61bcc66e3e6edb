//! Random histories of several counters.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::bytes::{NEVER, S, START, number};
use super::lua::{Data, Server};
use crate::ledger::{Event, Ledger, What};
use crate::server::{Call, Entry};

/// Windows in µs; those above 60 s are counted in ms.
const WINDOWS: [u64; 9] = [1, 3, 10, 1_000, 7_000, S, 60 * S, 61 * S, 86_400 * S];
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// How a key's counter counts.
#[derive(Clone, Copy, Debug)]
struct Shape {
    algorithm: u8,
    window_us: u64,
    limit: u64,
    capacity: u64,
}

impl Shape {
    fn random(rng: &mut Rng) -> Self {
        let (algorithm, limit) = (rng.u8(1..=5), rng.u64(1..=7));
        let capacity = if matches!(algorithm, 2 | 5) { rng.u64(1..=9) } else { limit };
        Self { algorithm, window_us: WINDOWS[rng.usize(..WINDOWS.len())], limit, capacity }
    }

    fn tick_us(self) -> u64 {
        if self.window_us > 60 * S { 1_000 } else { 1 }
    }

    /// The bytes of a rule: with flags, units, and the floor or stamp.
    fn rule(self, flags: u8, units: u64, last: u64) -> Vec<u8> {
        let flags = flags | if self.tick_us() > 1 { 2 } else { 0 };
        let window = self.window_us / self.tick_us();
        let numbers = [window, self.limit, self.capacity, units, last].into_iter().flat_map(|n| number(7, n));
        [self.algorithm, flags].into_iter().chain(numbers).collect()
    }

    fn check(self, rng: &mut Rng, flags: u8) -> Vec<u8> {
        let enforced = u8::from(rng.u8(..4) > 0);
        let cost = [0, 1, 1, 1, 1, 2, 3, self.capacity, self.capacity + 1, 1 << 40];
        let floor = [0, 0, 0, 0, 1, self.capacity];
        self.rule(flags | enforced, cost[rng.usize(..cost.len())], floor[rng.usize(..floor.len())])
    }

    fn change(self, rng: &mut Rng, stamps: &[u64]) -> Vec<u8> {
        let units = [1, 1, 2, self.capacity, 3 * self.capacity, 1 << 40][rng.usize(..6)];
        let whole = 4 * u8::from(self.algorithm == 4 && rng.bool());
        match rng.u8(..10) {
            0 => self.rule(32, 0, 0),
            1..=3 => self.rule(16 | whole, units, NEVER),
            4 | 5 => self.rule(8 | whole, units, NEVER),
            _ => self.rule(8 | whole, units, rng.choice(stamps).copied().unwrap_or(NEVER)),
        }
    }
}

/// One history: what is asked of a server, and what the ledger says of it.
pub(super) struct History<'a> {
    server: &'a Server,
    rng: Rng,
    ledger: Ledger,
    shapes: [Shape; 4],
    /// Stamps of what was taken, by key.
    stamps: BTreeMap<usize, Vec<u64>>,
    older: Option<Data>,
    /// Whether the time is given in calls, as all of them do or none.
    gives_time: bool,
}

impl<'a> History<'a> {
    pub(super) fn new(server: &'a Server, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        *server.data.lock().unwrap() = Data { now_us: START + rng.u64(..90 * S), ..Data::default() };
        let shapes = KEYS.map(|_| Shape::random(&mut rng));
        let gives_time = rng.u8(..8) == 0;
        Self { gives_time, server, rng, ledger: Ledger::default(), shapes, stamps: BTreeMap::new(), older: None }
    }

    /// Runs so many steps, up to the first that is wrong; `faults`: clocks are set, and keys are lost.
    pub(super) fn run(mut self, steps: usize, faults: bool) -> Result<Ledger, String> {
        for _ in 0..steps {
            self.pass(faults);
            let call = match self.rng.u8(..4) {
                0 => self.singles(1),
                1 => {
                    let count = self.rng.usize(1..=4);
                    self.singles(count)
                }
                _ => self.batch(),
            };
            let events = self.ledger.ran(&call)?;
            for event in &events {
                self.note(event);
            }
            self.probe(events.last())?;
        }
        Ok(self.ledger)
    }

    /// Lets time pass, and things happen.
    fn pass(&mut self, faults: bool) {
        let rng = &mut self.rng;
        let window = self.shapes[rng.usize(..4)].window_us;
        let mut data = self.server.data.lock().unwrap();
        data.now_us += match rng.u8(..8) {
            0..4 => 0,
            4 => rng.u64(..=2 * window + 2_000),
            5 => window,
            _ => rng.u64(..=window / 4 + 1),
        };
        data.expire();
        self.ledger.clock(data.now_us);
        drop(data);
        if faults && self.rng.bool() {
            self.fault(window);
        }
    }

    /// Sets the clock, or has the server lose something, or nothing.
    fn fault(&mut self, window: u64) {
        let rng = &mut self.rng;
        let (place, mut data) = (rng.usize(..4), self.server.data.lock().unwrap());
        let key = KEYS[place].as_bytes();
        match rng.u8(..20) {
            1 | 2 => data.now_us -= rng.u64(..=window),
            3 => data.now_us -= rng.u64(..=3 * window),
            4 => data.now_us += rng.u64(..=5 * window),
            5 => {
                data.now_us += 2 * window;
                self.ledger.clock(data.now_us);
                data.expire();
                data.now_us -= 2 * window + rng.u64(..=window / 4);
            }
            6 => {
                data.values.remove(key);
                self.ledger.forgot(key);
            }
            7 if rng.u8(..4) == 0 => {
                data.values.clear();
                self.ledger.forgot_all();
            }
            8 => {
                data.values.insert(key.to_vec(), (b"?".to_vec(), u64::MAX));
                self.ledger.doubt(key);
            }
            9 => self.older = Some(data.clone()),
            10 => {
                if let Some(older) = self.older.take() {
                    data.values = older.values;
                    self.ledger.doubt_all();
                }
            }
            11 => self.shapes[place].limit = rng.u64(1..=7),
            _ => {}
        }
    }

    fn time(&self) -> Vec<u8> {
        let now_us = self.server.data.lock().unwrap().now_us;
        if self.gives_time { now_us.to_string().into_bytes() } else { Vec::new() }
    }

    fn singles(&mut self, count: usize) -> Call {
        let mut places = [0, 1, 2, 3];
        self.rng.shuffle(&mut places);
        let keys: Vec<&[u8]> = places[..count].iter().map(|place| KEYS[*place].as_bytes()).collect();
        let checks = places[..count].iter().flat_map(|place| {
            let mut rule = self.shapes[*place].check(&mut self.rng, 0);
            rule.push(1);
            rule
        });
        let packed = [vec![u8::try_from(count).unwrap()], checks.collect()].concat();
        let entry = if count == 1 && self.rng.bool() { Entry::Single } else { Entry::Singles };
        let args = [self.time(), packed];
        self.server.run(entry, &keys, args)
    }

    fn batch(&mut self) -> Call {
        let (mut keys, mut rules, mut checks): (Vec<usize>, Vec<Vec<u8>>, Vec<u8>) = Default::default();
        for _ in 0..self.rng.usize(1..=3) {
            let count = if self.rng.u8(..3) == 0 { 0 } else { self.rng.usize(1..=4) };
            let mut own: Vec<usize> = Vec::new();
            checks.push(u8::try_from(count.max(1)).unwrap());
            for _ in 0..count.max(1) {
                let place = self.rng.usize(..4);
                let repeats = own.contains(&place);
                own.push(place);
                let whole = if self.shapes[place].algorithm == 4 && self.rng.bool() { 4 } else { 0 };
                let stamps = self.stamps.get(&place).map_or(&[][..], |stamps| stamps);
                rules.push(match count {
                    0 => self.shapes[place].change(&mut self.rng, stamps),
                    _ => self.shapes[place].check(&mut self.rng, whole | if repeats { 64 } else { 0 }),
                });
                let key = keys.iter().position(|key| *key == place).unwrap_or_else(|| {
                    keys.push(place);
                    keys.len() - 1
                });
                checks.extend([u8::try_from(key + 1).unwrap(), u8::try_from(rules.len()).unwrap()]);
            }
        }
        let packed = [vec![u8::try_from(rules.len()).unwrap()], rules.concat(), checks].concat();
        let keys: Vec<&[u8]> = keys.into_iter().map(|place| KEYS[place].as_bytes()).collect();
        let args = [self.time(), packed];
        self.server.run(Entry::Batch, &keys, args)
    }

    /// Notes when something was taken, as its algorithm has it.
    fn note(&mut self, event: &Event) {
        let place = KEYS.iter().position(|key| key.as_bytes() == &*event.key).unwrap();
        let (shape, ticks) = (self.shapes[place], event.at_us / event.rule.tick_us);
        if matches!(event.what, What::Take { .. }) && event.what.taken() > 0 {
            self.stamps.entry(place).or_default().push(match shape.algorithm {
                1 | 3 => ticks - ticks % event.rule.window(),
                5 => match event.remaining {
                    Some(left) => {
                        ticks + ((shape.capacity.saturating_sub(left)) * event.rule.window()).div_ceil(shape.limit)
                    }
                    None => ticks,
                },
                _ => ticks,
            });
        }
    }

    /// As many more units fit as the ledger says.
    fn probe(&mut self, event: Option<&Event>) -> Result<(), String> {
        let Some((event, left)) = event.and_then(|event| Some((event, event.remaining?))) else { return Ok(()) };
        if self.rng.u8(..10) > 0 {
            return Ok(());
        }
        let place = KEYS.iter().position(|key| key.as_bytes() == &*event.key).unwrap();
        let before = self.server.data.lock().unwrap().clone();
        let ask = || {
            let args = [vec![], [vec![1], self.shapes[place].rule(1, 1, 0), vec![1]].concat()];
            self.server.run(Entry::Single, &[&event.key], args).reply[7] & 1 == 1
        };
        let fit = (0..=left).take_while(|_| ask()).count() as u64;
        *self.server.data.lock().unwrap() = before;
        if fit == left { Ok(()) } else { Err(format!("{fit} more fit: {event:?}")) }
    }
}
