//! Deciding the jobs of a transaction, one after the other, each on the states that the earlier ones leave.
//!
//! Jobs and the states that were loaded come in; what was done for each, and the states to write, go out. Nothing here
//! waits, and nothing is kept: after a conflict the jobs are decided again on other states.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use super::bytes::{decode, encode, no_state};
use super::id::StateId;
use super::job::{Done, Job, Work};
use super::traits::Write;
use crate::core::algorithm::{Adjusted, State};
use crate::core::{Error, Quota, error};
use crate::store::bans::log;
use crate::store::clock::micros;
use crate::store::evaluate::{adjustment, applied, decided, evaluate, finish, is_kept};
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
            && change.2 == Change::Reset
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

    /// Checks that a state is one of this quota.
    fn check(&self, id: &StateId, quota: &Quota) -> Result<(), Error> {
        match &self.by_id[id].0 {
            Ok(Some(state)) if !quota.can_read(state) => Err(no_state()),
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
        let state = |index: usize| self.state(&ids[index]).map(Cow::Borrowed);
        let now = |quota: &Quota| quota.tick().of(self.now_us);
        let (mut steps, refused) = evaluate(checks, state, now);
        finish(checks, &mut steps, refused, state, now);
        log(checks, &steps);
        for (index, check) in checks.iter().enumerate() {
            if is_kept(checks, &steps, index, refused)
                && let Some(state) = steps[index].state.take()
            {
                self.keep(&ids[index], check.counter.quota(), state, steps[index].reset);
            }
        }
        decided(self.store, checks, &steps, refused)
    }

    fn adjust(&mut self, (before, taken, change): &(Vec<Taken>, Taken, Change), id: &StateId) -> Applied {
        let Taken { counter, floor, .. } = taken;
        let quota = counter.quota();
        let now = quota.tick().of(self.now_us);
        let Adjusted { units, state } = quota.adjust(self.state(id), now, adjustment(before, taken, *change));
        if let Some((state, reset)) = state {
            self.keep(id, quota, state, reset);
        }
        applied(taken, *change, units, &quota.decide(self.state(id), now, 0, *floor))
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
}
