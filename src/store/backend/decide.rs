//! Deciding the jobs of a transaction, one after the other, each on the states that the earlier ones leave.
//!
//! Jobs and the states that were loaded come in; what was done for each, and the states to write, go out. Nothing here
//! waits, and nothing is kept: after a conflict the jobs are decided again on other states.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use super::bytes::{decode, encode, no_state};
use super::id::StateId;
use super::job::{Done, Job, Work};
use super::traits::Write;
use crate::core::algorithm::ban::{self, Struck};
use crate::core::algorithm::{Adjusted, State, Step};
use crate::core::{Ban, Error, Quota, error};
use crate::store::bans::{Bans, applied_strike};
use crate::store::clock::micros;
use crate::store::evaluate::{adjustment, applied, decided, evaluate, look_again};
use crate::store::{Applied, Change, Check, Decided, StoreId, Taken};

/// The result of each job, in their order.
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
    let read = |state: &Option<Vec<u8>>| (state.as_deref().map(decode).transpose(), None);
    let by_id = ids.iter().zip(states.iter().map(read)).collect();
    let mut states = States { store, now_us: micros(now), by_id };
    let results = jobs.iter().map(|job| states.work(job)).collect();
    Ok((results, states.writes()))
}

/// The states of a transaction while it is decided.
struct States<'a> {
    store: StoreId,
    /// In microseconds since the Unix epoch.
    now_us: u64,
    by_id: BTreeMap<&'a StateId, Entry>,
}

/// A state by now, or why it cannot be read, and how long it may matter if it has to be written.
type Entry = (Result<Option<State>, Error>, Option<Duration>);

impl States<'_> {
    /// Does the work of one job.
    ///
    /// # Errors
    ///
    /// If a state that it needs cannot be read; a reset needs none.
    fn work(&mut self, job: &Job) -> Result<Done, Error> {
        if let Work::Adjust(change) = &job.work
            && matches!(change.2, Change::Lift | Change::Reset)
        {
            let (before, _) = mem::replace(self.entry(&job.ids[0]), (Ok(None), Some(Duration::ZERO)));
            let found = !matches!(before, Ok(None));
            return Ok(Done::Applied(Applied::new(found.into(), change.1.stamp)));
        }
        for (index, id) in job.ids.iter().enumerate() {
            self.check(id, job.work.quota(index))?;
        }
        Ok(match &job.work {
            Work::Decide(checks) => Done::Decided(self.decide(checks, &job.ids)),
            Work::Adjust(change) => Done::Applied(self.adjust(change, &job.ids[0])),
        })
    }

    /// Checks that a state is one of this quota, or of a ban if there is none.
    fn check(&self, id: &StateId, quota: Option<&Quota>) -> Result<(), Error> {
        let is_ban = |state: &State| matches!(state, State::Ban { .. });
        match &self.by_id[id].0 {
            Ok(Some(state)) if !quota.map_or_else(|| is_ban(state), |quota| quota.can_read(state)) => Err(no_state()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.shared()),
        }
    }

    /// Returns the states that differ from what was loaded.
    fn writes(self) -> Vec<Write> {
        let written = |(id, (state, ttl)): (&StateId, Entry)| {
            Some(Write { id: id.clone(), state: state.ok()?.as_ref().map(encode), ttl: ttl? })
        };
        self.by_id.into_iter().filter_map(written).collect()
    }

    fn decide(&mut self, checks: &[Check], ids: &[StateId]) -> Decided {
        let mut bans = Bans::look(checks, self.now_us, |bar| self.state(&ids[checks.len() + bar]).cloned());
        let step = |index: usize, state: Option<&State>, cost: u64| {
            let Check { counter, floor, .. } = &checks[index];
            let now = counter.quota().tick().of(self.now_us);
            counter.quota().decide(state.or(self.state(&ids[index])), now, cost, *floor)
        };
        let (mut steps, refused) = evaluate(checks, &bans, step);
        checks.iter().zip(&steps).for_each(|(check, step)| step.found.warn(check.counter.policy()));
        bans.strike(checks, &steps, step);
        if refused {
            look_again(&mut steps, step);
        }
        let decided = decided(self.store, checks, &bans, &steps, refused);
        for (index, (check, step)) in checks.iter().zip(steps).enumerate() {
            if let Step { fits: true, state: Some(state), reset, .. } = step
                && !refused
                && check.cost > 0
                && !bans.bars(index)
            {
                self.keep(&ids[index], check.counter.quota(), state, reset);
            }
        }
        for (bar, ban, state, life) in bans.take_writes() {
            self.keep_ban(&ids[checks.len() + bar], &ban, state, life);
        }
        bans.log(checks);
        decided
    }

    fn adjust(&mut self, (before, taken, change): &(Vec<Taken>, Taken, Change), id: &StateId) -> Applied {
        let Taken { counter, floor, .. } = taken;
        let quota = counter.quota();
        if let Change::Strike(ban) = change {
            return self.strike(taken, ban, id);
        }
        let now = quota.tick().of(self.now_us);
        let Adjusted { units, state } = quota.adjust(self.state(id), now, adjustment(before, taken, *change));
        if let Some((state, reset)) = state {
            self.keep(id, quota, state, reset);
        }
        applied(taken, *change, units, &quota.decide(self.state(id), now, 0, *floor))
    }

    fn strike(&mut self, taken: &Taken, ban: &Ban, id: &StateId) -> Applied {
        let before = self.state(id);
        let Some(Struck { state, life, units, .. }) = ban::strike(before, self.now_us / 1_000, ban) else {
            return applied_strike(taken, ban, before, 0, self.now_us);
        };
        let applied = applied_strike(taken, ban, Some(&state), units, self.now_us);
        self.keep_ban(id, ban, state, life);
        applied
    }

    fn entry(&mut self, id: &StateId) -> &mut Entry {
        self.by_id.get_mut(id).expect("a transaction has all states of its jobs")
    }

    fn state(&self, id: &StateId) -> Option<&State> {
        self.by_id[id].0.as_ref().ok()?.as_ref()
    }

    /// Keeps a state. It may matter until it resets, and one more window if the clock steps back.
    fn keep(&mut self, id: &StateId, quota: &Quota, state: State, reset: u64) {
        let micros = reset.saturating_mul(quota.tick().micros());
        *self.entry(id) = (Ok(Some(state)), Some(Duration::from_micros(micros).saturating_add(quota.window())));
    }

    /// Keeps a ban for its life in milliseconds, and for one more of the longest bans if the clock steps back.
    fn keep_ban(&mut self, id: &StateId, ban: &Ban, state: State, life: u64) {
        *self.entry(id) = (Ok(Some(state)), Some(Duration::from_millis(life).saturating_add(ban.most())));
    }
}
