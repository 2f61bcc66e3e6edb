//! Deciding a round: its jobs one after the other, each on the states that the earlier ones leave.
//!
//! Jobs and the states that were loaded come in; what was done for each, and the states to write, go out. Nothing here
//! waits, and nothing is kept: a round that met a conflict is decided again on other states.

use std::mem;
use std::time::Duration;

use smallvec::SmallVec;

use super::bytes::{decode, encode, no_state};
use super::id::StateId;
use super::job::{Done, Job, Kind, Work};
use super::traits::Write;
use crate::core::algorithm::ban::{self, Struck};
use crate::core::algorithm::{Adjusted, State, Step};
use crate::core::{Ban, Error, Quota, error};
use crate::store::bans::{Bans, applied_strike};
use crate::store::clock::micros;
use crate::store::evaluate::{adjustment, applied, decided, evaluate, look_again};
use crate::store::{Applied, Change, Check, StoreId, Taken};

/// The result of each job of a round.
pub(super) type Results = Vec<Result<Done, Error>>;

/// Decides the jobs on what was loaded for their states; returns their results, and what is to be written.
///
/// # Errors
///
/// If there is not one state for each id.
pub(super) fn decide(
    store: StoreId,
    ids: &[StateId],
    jobs: &[Job],
    now: Duration,
    states: &[Option<Vec<u8>>],
) -> Result<(Results, Vec<Write>), Error> {
    if states.len() != ids.len() {
        let text = format!("the database returned {} states for {} ids", states.len(), ids.len());
        return Err(Error::new(error::Kind::Store, text));
    }
    let states = states.iter().map(|state| state.as_deref().map(decode).transpose()).collect();
    let mut round = Round::new(store, ids, micros(now), states);
    let results = jobs.iter().map(|job| round.work(job)).collect();
    Ok((results, round.writes()))
}

/// The states of a round while it is decided.
struct Round<'a> {
    store: StoreId,
    /// Distinct and in ascending order.
    ids: &'a [StateId],
    /// In microseconds since the Unix epoch.
    now_us: u64,
    /// For each id, its state by now, and how long that may matter if it has to be written.
    states: Vec<(Option<State>, Option<Duration>)>,
    /// For each id, why its state cannot be read.
    unreadable: Vec<Option<Error>>,
    /// For each id, whether it is known that its quota can read the state.
    is_checked: Vec<bool>,
}

impl<'a> Round<'a> {
    /// A round over states that were loaded, one for each id.
    fn new(store: StoreId, ids: &'a [StateId], now_us: u64, states: Vec<Result<Option<State>, Error>>) -> Self {
        let read = |state: Result<Option<State>, Error>| match state {
            Ok(state) => ((state, None), None),
            Err(error) => ((None, None), Some(error)),
        };
        let (states, unreadable) = states.into_iter().map(read).unzip();
        Self { store, ids, now_us, states, unreadable, is_checked: vec![false; ids.len()] }
    }

    /// Does the work of one job.
    ///
    /// # Errors
    ///
    /// If a state that it needs cannot be read; a reset needs none.
    fn work(&mut self, job: &Job) -> Result<Done, Error> {
        let places: SmallVec<[usize; 4]> = job.ids.iter().map(|id| self.place(id)).collect();
        for (place, kind) in places.iter().zip(job.work.kinds()) {
            self.check(*place, kind);
        }
        let was_unreadable = job.work.forgets() && self.unreadable[places[0]].take().is_some();
        if let Some(error) = places.iter().find_map(|place| self.unreadable[*place].as_ref()) {
            return Err(error.shared());
        }
        Ok(match &job.work {
            Work::Decide(checks) => self.decide(checks, &places),
            Work::Adjust(change) if job.work.forgets() => {
                let found = self.forget(places[0]) || was_unreadable;
                Done::Applied(Applied::new(found.into(), change.1.stamp))
            }
            Work::Adjust(change) => self.adjust(change, places[0]),
        })
    }

    /// Checks once that a state which was loaded is one of its quota, or of a ban.
    fn check(&mut self, place: usize, kind: Kind<'_>) {
        let is_checked = mem::replace(&mut self.is_checked[place], true);
        let can_read = |state: &State| match kind {
            Kind::Quota(quota) => quota.can_read(state),
            Kind::Ban => matches!(state, State::Ban { .. }),
        };
        if !is_checked && self.states[place].0.as_ref().is_some_and(|state| !can_read(state)) {
            self.unreadable[place] = Some(no_state());
        }
    }

    /// Returns the states that differ from what was loaded.
    fn writes(self) -> Vec<Write> {
        let written = |(id, (state, ttl)): (&StateId, (Option<State>, Option<Duration>))| {
            ttl.map(|ttl| Write { id: id.clone(), state: state.as_ref().map(encode), ttl })
        };
        self.ids.iter().zip(self.states).filter_map(written).collect()
    }

    fn decide(&mut self, checks: &[Check], places: &[usize]) -> Done {
        let mut bans = Bans::look(checks, self.now_us, |bar| self.states[places[checks.len() + bar]].0.clone());
        let step = |index: usize, state: Option<&State>, cost: u64| {
            let Check { counter, floor, .. } = &checks[index];
            let now = counter.quota().tick().of(self.now_us);
            counter.quota().decide(state.or(self.states[places[index]].0.as_ref()), now, cost, *floor)
        };
        let (mut steps, refused) = evaluate(checks, &bans, step);
        checks.iter().zip(&steps).for_each(|(check, step)| step.found.warn(check.counter.policy()));
        bans.strike(checks, &steps, step);
        if refused {
            look_again(&mut steps, step);
        }
        let decided = decided(self.store, checks, &bans, &steps, refused);
        if !refused {
            for (index, (check, step)) in checks.iter().zip(steps).enumerate() {
                if let Step { fits: true, state: Some(state), reset, .. } = step
                    && check.cost > 0
                    && !bans.bars(index)
                {
                    self.keep(places[index], check.counter.quota(), state, reset);
                }
            }
        }
        for (bar, ban, state, life) in bans.take_writes() {
            self.keep_ban(places[checks.len() + bar], &ban, state, life);
        }
        bans.log(checks);
        Done::Decided(decided)
    }

    /// Counts a strike.
    fn strike(&mut self, taken: &Taken, ban: &Ban, place: usize) -> Applied {
        let before = self.states[place].0.clone();
        let Some(struck) = ban::strike(before.as_ref(), self.now_us / 1_000, ban) else {
            return applied_strike(taken, ban, before.as_ref(), 0, self.now_us);
        };
        let Struck { state, life, units, .. } = struck;
        let applied = applied_strike(taken, ban, Some(&state), units, self.now_us);
        self.keep_ban(place, ban, state, life);
        applied
    }

    fn adjust(&mut self, (before, taken, change): &(Vec<Taken>, Taken, Change), place: usize) -> Done {
        let Taken { counter, floor, .. } = taken;
        let quota = counter.quota();
        if let Change::Strike(ban) = change {
            return Done::Applied(self.strike(taken, ban, place));
        }
        let now = quota.tick().of(self.now_us);
        let Adjusted { units, state } =
            quota.adjust(self.states[place].0.as_ref(), now, adjustment(before, taken, *change));
        if let Some((state, reset)) = state {
            self.keep(place, quota, state, reset);
        }
        let step = quota.decide(self.states[place].0.as_ref(), now, 0, *floor);
        Done::Applied(applied(taken, *change, units, &step))
    }

    /// Deletes a state; returns whether there was one.
    fn forget(&mut self, place: usize) -> bool {
        mem::replace(&mut self.states[place], (None, Some(Duration::ZERO))).0.is_some()
    }

    /// Keeps a state. It may matter until it resets, and one more window if the clock steps back.
    fn keep(&mut self, place: usize, quota: &Quota, state: State, reset: u64) {
        let micros = reset.saturating_mul(quota.tick().micros());
        self.states[place] = (Some(state), Some(Duration::from_micros(micros).saturating_add(quota.window())));
    }

    /// Keeps a ban for its life in milliseconds, and for one more of the longest bans if the clock steps back.
    fn keep_ban(&mut self, place: usize, ban: &Ban, state: State, life: u64) {
        self.states[place] = (Some(state), Some(Duration::from_millis(life).saturating_add(ban.most())));
    }

    fn place(&self, id: &StateId) -> usize {
        self.ids.binary_search(id).expect("a round has all states of its jobs")
    }
}
