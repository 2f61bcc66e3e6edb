//! Random histories of several counters.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::ban_shape::BanShape;
use super::bytes::{S, START};
use super::lua::{Data, Server};
use super::shape::Shape;
use crate::ledger::{Event, Ledger, What};
use crate::server::Entry;

pub(super) const KEYS: [&str; 4] = ["a:1f", "b:1f", "c:1f", "d:1f"];

/// The bans of the same.
pub(super) const BANS: [&str; 4] = ["a:1b", "b:1b", "c:1b", "d:1b"];

/// One history: what is asked of a server, and what the ledger says of it.
pub(super) struct History<'a> {
    pub(super) server: &'a Server,
    pub(super) rng: Rng,
    ledger: Ledger,
    pub(super) shapes: [Shape; 4],
    pub(super) bans: [Option<BanShape>; 4],
    /// Stamps of what was taken, by key.
    pub(super) stamps: BTreeMap<usize, Vec<u64>>,
    older: Option<Data>,
    /// Whether the time is given in calls, as all of them do or none.
    pub(super) gives_time: bool,
}

impl<'a> History<'a> {
    pub(super) fn new(server: &'a Server, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        *server.data.lock().unwrap() = Data { now_us: START + rng.u64(..90 * S), ..Data::default() };
        let shapes = KEYS.map(|_| Shape::random(&mut rng));
        let has_bans = rng.bool();
        let bans = KEYS.map(|_| (has_bans && rng.bool()).then(|| BanShape::random(&mut rng)));
        let gives_time = rng.u8(..8) == 0;
        let (ledger, stamps) = (Ledger::default(), BTreeMap::new());
        Self { gives_time, server, rng, ledger, shapes, bans, stamps, older: None }
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
        let place = rng.usize(..4);
        let window = match self.bans[place].filter(|_| rng.bool()) {
            Some(ban) => 1_000 * if rng.bool() { ban.within } else { ban.time },
            None => self.shapes[place].window_us,
        };
        let mut data = self.server.data.lock().unwrap();
        data.now_us += match rng.u8(..8) {
            0..4 => 0,
            // A key stays for up to 2 ms after the window of a calendar.
            4 if window == 3_600 * S => window - data.now_us % window + rng.u64(..2_000),
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
        let key = if rng.bool() { KEYS[place] } else { BANS[place] }.as_bytes();
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
            12 if self.bans[place].is_some() => self.bans[place] = Some(BanShape::random(rng)),
            _ => {}
        }
    }

    /// Notes when something was taken, as its algorithm has it.
    fn note(&mut self, event: &Event) {
        let Some(place) = KEYS.iter().position(|key| key.as_bytes() == &*event.key) else { return };
        let (shape, ticks) = (self.shapes[place], event.at_us / event.rule.tick_us);
        if matches!(event.what, What::Take { .. }) && event.what.taken() > 0 {
            self.stamps.entry(place).or_default().push(match shape.algorithm {
                1 | 3 => ticks - ticks % event.rule.window(),
                33 => ticks - ticks % event.rule.window() + event.rule.window(),
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
        let Some(place) = KEYS.iter().position(|key| key.as_bytes() == &*event.key) else { return Ok(()) };
        let before = self.server.data.lock().unwrap().clone();
        let ask = || {
            let now_us = self.server.data.lock().unwrap().now_us;
            let rule = self.shapes[place].now(now_us, self.shapes[place].rule(1, 1, 0));
            let args = [vec![], [vec![1], rule, vec![1]].concat()];
            self.server.run(Entry::Single, &[&event.key], args).reply[7] & 1 == 1
        };
        let fit = (0..=left).take_while(|_| ask()).count() as u64;
        *self.server.data.lock().unwrap() = before;
        if fit == left { Ok(()) } else { Err(format!("{fit} more fit: {event:?}")) }
    }
}
