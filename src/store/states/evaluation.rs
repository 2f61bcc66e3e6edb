//! Deciding on states that were loaded. Nothing here waits: what calls a database is the store.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::format::{decode, encode, no_state};
use super::id::StateId;
use crate::core::algorithm::{Adjusted, State};
use crate::core::error::Kind;
use crate::core::{Error, Quota};
use crate::store::bans::{changed, log, with_bans};
use crate::store::clock::micros;
use crate::store::evaluate::{adjustment, applied, decided, evaluate, finish, is_kept, of_any};
use crate::store::{Change, ChangeResult, Check, Counter, Receipt, ReceiptItem, Settlement, StoreDecision, StoreId};

/// Decisions and changes on states that a store has loaded: algorithms, costs, floors, bans, shadow mode and refunds for a
/// store on another database.
///
/// A store loads the states of some counters and the clock of the database as of one point in time, makes an evaluation of
/// them, decides and changes what its callers want, one after the other, and then writes
/// [what is to be written](Self::into_writes), all of it or nothing, if none of the states has changed meanwhile. Otherwise
/// it loads them again, and decides anew. `tollgate-sql` has a store that does all of that, with batches, timeouts and
/// retries, for a database that can load and commit.
///
/// # Errors
///
/// Of each function: if a state was not loaded, or is none of its counter that this version can read: it is an error of
/// what needs it, and not of the rest, which can go on. To start anew would admit what was already used.
///
/// # Examples
///
/// Two requests, decided on what the table has:
///
/// ```
/// use std::collections::HashMap;
/// use std::time::{SystemTime, UNIX_EPOCH};
/// use tollgate::policy::PolicyName;
/// use tollgate::store::{Check, Counter, Evaluation, StateId, StoreId};
/// use tollgate::{Key, Quota};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let mut table: HashMap<StateId, Vec<u8>> = HashMap::new();
/// let store = StoreId::new();
///
/// let counter = Counter::new(PolicyName::try_from("mail")?, Key::new("user", "ada"), Quota::per_hour(1));
/// let checks = [Check::new(counter, 1)];
/// for expected in [true, false] {
///     let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
///     let loaded = StateId::of_checks(&checks).into_iter().map(|id| (id.clone(), table.get(&id).cloned()));
///     let mut evaluation = Evaluation::new(store, now, loaded);
///     let decided = evaluation.decide(&checks)?;
///     assert_eq!(decided.decision.is_allowed(), expected);
///     for write in evaluation.into_writes() {
///         match write.state {
///             Some(state) => table.insert(write.id, state),
///             None => table.remove(&write.id),
///         };
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Evaluation {
    store: StoreId,
    /// In microseconds since the Unix epoch.
    now_us: u64,
    states: BTreeMap<StateId, LoadedState>,
}

/// A state by now, or why it cannot be read, and how long it may matter if it has to be written.
type LoadedState = (Result<Option<State>, Error>, Option<Duration>);

/// A new state of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateWrite {
    /// Whose state it is.
    pub id: StateId,
    /// The state: at most 34 bytes, and of a sliding log 10 and 4 more for each unit. `None` deletes it.
    pub state: Option<Vec<u8>>,
    /// How long the state may matter: after that it is the same as none, and may be deleted at any time.
    pub ttl: Duration,
}

impl Evaluation {
    /// An evaluation for `store`, whose identity receipts have, at `now` by the database's clock, since the Unix epoch, of
    /// these states: `None` where the database has none, or it has expired.
    ///
    /// Microseconds count; the clock stops in 2077. All processes must go by one clock. One that steps back neither refills
    /// nor rewinds a counter; one that jumps ahead by more than a window makes later states be set aside, with a warning,
    /// once it is right again.
    pub fn new(store: StoreId, now: Duration, states: impl IntoIterator<Item = (StateId, Option<Vec<u8>>)>) -> Self {
        let read = |(id, state): (_, Option<Vec<u8>>)| (id, (state.as_deref().map(decode).transpose(), None));
        Self { store, now_us: micros(now), states: states.into_iter().map(read).collect() }
    }

    /// Decides a request over these checks, as [`Store::decide`](crate::store::Store::decide) has to.
    ///
    /// # Errors
    ///
    /// As of [any function](Self#errors).
    pub fn decide(&mut self, checks: &[Check]) -> Result<StoreDecision, Error> {
        let checks = &*with_bans(checks);
        let ids: Vec<_> = checks.iter().map(|check| StateId::new(&check.counter)).collect();
        for (check, id) in checks.iter().zip(&ids) {
            self.check(id, check.counter.quota())?;
        }
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
        Ok(decided(self.store, checks, &steps, refused))
    }

    /// Changes what a decision took, as [`Store::settle`](crate::store::Store::settle) has to; returns the result of each
    /// change, and none for a receipt of another store.
    ///
    /// # Errors
    ///
    /// As of [any function](Self#errors). Changes before the one that failed are kept.
    pub fn settle(&mut self, receipt: &Receipt, changes: &[Settlement]) -> Result<Vec<ChangeResult>, Error> {
        if receipt.store() != self.store {
            return Ok(Vec::new());
        }
        let one = |settlement: &Settlement| match settlement.of(receipt) {
            Some((taken, change)) => self.change(settlement.before(receipt), taken, change),
            None => Ok(settlement.nothing(receipt)),
        };
        changes.iter().map(one).collect()
    }

    /// Changes a counter outside of any decision, as [`Store::adjust`](crate::store::Store::adjust) has to.
    ///
    /// # Errors
    ///
    /// As of [any function](Self#errors). A [reset](Change::Reset) deletes also what cannot be read.
    pub fn adjust(&mut self, counter: &Counter, change: Change) -> Result<ChangeResult, Error> {
        self.change(&[], &of_any(counter), change)
    }

    /// Returns what is to be written, each state once; nothing if nothing was taken or changed.
    pub fn into_writes(self) -> Vec<StateWrite> {
        let written = |(id, (state, ttl)): (StateId, LoadedState)| {
            Some(StateWrite { id, state: state.ok()?.as_ref().map(encode), ttl: ttl? })
        };
        self.states.into_iter().filter_map(written).collect()
    }

    /// Changes what was taken, by a request that took others `before`.
    fn change(&mut self, before: &[ReceiptItem], taken: &ReceiptItem, change: Change) -> Result<ChangeResult, Error> {
        let (taken, change) = changed(taken, change);
        let (id, quota) = (&StateId::new(&taken.counter), taken.counter.quota());
        if change == Change::Reset {
            let state = self.states.get_mut(id).ok_or_else(|| not_loaded(id))?;
            let is_there = !matches!(state.0, Ok(None));
            if is_there {
                *state = (Ok(None), Some(Duration::ZERO));
            }
            return Ok(ChangeResult::new(is_there.into(), taken.stamp));
        }
        self.check(id, quota)?;
        let now = quota.tick().of(self.now_us);
        let Adjusted { units, state } = quota.adjust(self.state(id), now, adjustment(before, &taken, change));
        if let Some((state, reset)) = state {
            self.keep(id, quota, state, reset);
        }
        Ok(applied(&taken, change, units, &quota.decide(self.state(id), now, 0, taken.floor)))
    }

    fn check(&self, id: &StateId, quota: &Quota) -> Result<(), Error> {
        match &self.states.get(id).ok_or_else(|| not_loaded(id))?.0 {
            Ok(Some(state)) if !quota.can_read(state) => Err(no_state()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.shared()),
        }
    }

    fn state(&self, id: &StateId) -> Option<&State> {
        self.states.get(id)?.0.as_ref().ok()?.as_ref()
    }

    /// Keeps a state, until it is untouched and for one more window.
    fn keep(&mut self, id: &StateId, quota: &Quota, state: State, reset: u64) {
        let untouched = Duration::from_micros(reset.saturating_mul(quota.tick().micros()));
        self.states.insert(id.clone(), (Ok(Some(state)), Some(untouched.saturating_add(quota.window()))));
    }
}

fn not_loaded(id: &StateId) -> Error {
    Error::new(Kind::Store, format!("the state {id} was not loaded"))
}
