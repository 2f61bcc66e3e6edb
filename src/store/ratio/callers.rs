//! The callers of one key, so that small ones are not dropped for a large one.
//!
//! Requests come in with the hash of their caller; the keep of each caller goes out, so that together they are admitted
//! as much as the key is. It moves drops from one caller to another within this process and leaves their sum as it was,
//! so nothing of it is reported.
//!
//! At most 64 callers are listed. One more takes the place of the smallest, with its count ("space saving"): so counts
//! add up to what was offered, none is too low, and each caller with more than 1/64 of the units is listed.

use std::mem;

use super::law::{ALL, Deviation, Draws, Level};

/// Callers of a key that are counted.
const MOST_CALLERS: usize = 64;

/// The callers of one kind of requests of a key.
#[derive(Debug, Default)]
pub(super) struct Callers {
    listed: Vec<Caller>,
    /// How callers are admitted that were not listed in the last tick; `None` before it was computed.
    others: Option<Others>,
}

/// Callers that were not listed in the last tick.
#[derive(Clone, Copy, Debug)]
enum Others {
    /// They were offered nothing: who comes under another name in each tick is admitted no more than others.
    UpTo(Level),
    /// There was no place for more, so they may have been offered as much as the smallest, and have its keep.
    AsSmallest(u64),
}

/// What one caller was offered in the current tick and in the last one.
#[derive(Debug)]
struct Caller {
    hash: u64,
    offered: u64,
    last: u64,
    /// Its keep; `None` if it was not listed in the last tick.
    keep: Option<u64>,
    deviation: Deviation,
}

impl Callers {
    /// Counts a request of a caller, and returns whether it is admitted: by `keep`, if none is known of the caller, or
    /// if it drops nothing. What was divided then is of totals that no longer hold.
    pub(super) fn admits(&mut self, hash: u64, costs: (u64, u64), keep: u64, draws: &mut Draws) -> bool {
        let others = self.others;
        let caller = self.offer(hash, costs.0);
        let of_others = || match others? {
            Others::UpTo(level) => Some(level.keep(caller.offered.saturating_sub(costs.0), costs.0)),
            Others::AsSmallest(keep) => Some(keep),
        };
        let keep = caller.keep.or_else(of_others).filter(|_| keep < ALL).unwrap_or(keep);
        caller.deviation.admits(keep, costs, draws.draw())
    }

    /// Counts units of a caller.
    pub(super) fn count(&mut self, hash: u64, cost: u64) {
        self.offer(hash, cost);
    }

    fn offer(&mut self, hash: u64, cost: u64) -> &mut Caller {
        let listed = self.listed.iter().position(|caller| caller.hash == hash);
        let place = listed.unwrap_or_else(|| self.list(hash));
        let caller = &mut self.listed[place];
        caller.offered = caller.offered.saturating_add(cost);
        caller
    }

    /// Lists a caller, and returns its place.
    fn list(&mut self, hash: u64) -> usize {
        let mut caller = Caller { hash, offered: 0, last: 0, keep: None, deviation: Deviation::default() };
        if self.listed.len() < MOST_CALLERS {
            self.listed.push(caller);
            return self.listed.len() - 1;
        }
        let units = |place: &usize| self.listed[*place].offered.max(self.listed[*place].last);
        let smallest = (0..self.listed.len()).min_by_key(units).unwrap_or_default();
        caller.offered = self.listed[smallest].offered;
        self.listed[smallest] = caller;
        smallest
    }

    /// Begins a tick, and returns whether none is listed.
    pub(super) fn roll(&mut self) -> bool {
        self.listed.iter_mut().for_each(|caller| caller.last = mem::take(&mut caller.offered));
        self.listed.retain(|caller| caller.last > 0);
        self.listed.is_empty()
    }

    /// Divides what `keep` admits of the units of the last tick among the callers: each is admitted what it was
    /// offered, up to a level.
    pub(super) fn divide(&mut self, keep: u64) {
        // Those that were listed since then have none.
        let mut offered: Vec<u64> = self.listed.iter().map(|caller| caller.last).filter(|units| *units > 0).collect();
        offered.sort_unstable();
        let Some(level) = Level::new(&offered, keep) else {
            self.forget();
            return;
        };
        for caller in &mut self.listed {
            caller.keep = (caller.last > 0).then(|| level.keep(0, caller.last));
        }
        self.others = Some(match offered.first().filter(|_| offered.len() == MOST_CALLERS) {
            Some(smallest) => Others::AsSmallest(level.keep(0, *smallest)),
            None => Others::UpTo(level),
        });
    }

    /// Forgets what was divided.
    pub(super) fn forget(&mut self) {
        self.listed.iter_mut().for_each(|caller| caller.keep = None);
        self.others = None;
    }
}
