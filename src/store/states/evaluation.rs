//! Decisions on loaded states. Nothing here waits: the store calls the database.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::format::{decode, encode, no_state};
use super::id::StateId;
use crate::core::algorithm::{Adjusted, CounterState};
use crate::core::error::Kind;
use crate::core::{Error, Quota};
use crate::store::bans::{changed, log, with_bans};
use crate::store::clock::micros;
use crate::store::evaluate::{adjustment, applied, decided, evaluate, finish, is_kept, untaken};
use crate::store::{Change, ChangeResult, Check, Counter, Receipt, ReceiptItem, Settlement, StoreDecision, StoreId};

/// Decisions and changes on loaded states, for a store on another database.
///
/// It implements algorithms, costs, floors, bans, shadow mode and refunds.
///
/// A store loads the states of some counters and the database's clock at one point in time, and makes an evaluation of
/// them. It decides and changes what its callers want, one after the other. Then it [writes](Self::into_writes) the new
/// states, all of them or nothing, if none of the loaded states has changed since. Otherwise it loads them again, and
/// decides again. `tollgate-sql` has a store that does all of that, with batches, timeouts and retries, for a database
/// that can load and commit.
///
/// # Errors
///
/// Each function fails if a state was not loaded, or is not a state of its counter that this version can read. The
/// error is of the decision or change that needs the state. Others can continue. A new state instead would allow what
/// was already used.
///
/// # Examples
///
/// Two requests, decided by the rows of the table:
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

/// A state, or the error of reading it, and its TTL if it has to be written.
type LoadedState = (Result<Option<CounterState>, Error>, Option<Duration>);

/// A new state of a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateWrite {
    /// The identity of the state.
    pub id: StateId,
    /// The state: at most 34 bytes, or for a sliding log 10 and 4 more for each unit. `None` deletes it.
    pub state: Option<Vec<u8>>,
    /// The TTL of the state: after that it is equivalent to none, and may be deleted at any time.
    pub ttl: Duration,
}

impl Evaluation {
    /// Creates an evaluation of loaded states: `None` where the database has none, or it has expired.
    ///
    /// `store` is the identity in receipts. `now` is the database's time since the Unix epoch. Its parts below
    /// microseconds are ignored, and the clock stops in 2077. All processes must use one clock. If it steps back, it
    /// neither refills nor rewinds a counter. If it jumps ahead by more than a window, later states are set aside, with
    /// a warning, once it is right again.
    pub fn new(store: StoreId, now: Duration, states: impl IntoIterator<Item = (StateId, Option<Vec<u8>>)>) -> Self {
        let read = |(id, state): (_, Option<Vec<u8>>)| (id, (state.as_deref().map(decode).transpose(), None));
        Self { store, now_us: micros(now), states: states.into_iter().map(read).collect() }
    }

    /// Decides a request over these checks, to implement [`Store::decide`](crate::store::Store::decide).
    ///
    /// # Errors
    ///
    /// The errors of [any function](Self#errors).
    pub fn decide(&mut self, checks: &[Check]) -> Result<StoreDecision, Error> {
        let checks = &*with_bans(checks);
        let ids: Vec<_> = checks.iter().map(|check| StateId::new(&check.counter)).collect();
        for (check, id) in checks.iter().zip(&ids) {
            self.check(id, check.counter.quota())?;
        }
        let state = |index: usize| self.state(&ids[index]).map(Cow::Borrowed);
        let now = |quota: &Quota| quota.tick().ticks_in(self.now_us);
        let mut steps = evaluate(checks, state, now);
        let refused = finish(checks, &mut steps, state, now);
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

    /// Changes the units that a decision took, to implement [`Store::settle`](crate::store::Store::settle).
    ///
    /// Returns the result of each change, and none for a receipt of another store.
    ///
    /// # Errors
    ///
    /// The errors of [any function](Self#errors). Changes before the one that failed are kept.
    pub fn settle(&mut self, receipt: &Receipt, changes: &[Settlement]) -> Result<Vec<ChangeResult>, Error> {
        if receipt.store() != self.store {
            return Ok(Vec::new());
        }
        let one = |settlement: &Settlement| match settlement.bounded(receipt) {
            Some((taken, change)) => self.change(settlement.before(receipt), taken, change),
            None => Ok(settlement.nothing(receipt)),
        };
        changes.iter().map(one).collect()
    }

    /// Changes a counter outside of any decision, to implement [`Store::adjust`](crate::store::Store::adjust).
    ///
    /// # Errors
    ///
    /// The errors of [any function](Self#errors). A [reset](Change::Reset) also deletes states that cannot be read.
    pub fn adjust(&mut self, counter: &Counter, change: Change) -> Result<ChangeResult, Error> {
        self.change(&[], &untaken(counter), change)
    }

    /// Returns the states to write, each once: none if nothing was taken or changed.
    pub fn into_writes(self) -> Vec<StateWrite> {
        let written = |(id, (state, ttl)): (StateId, LoadedState)| {
            Some(StateWrite { id, state: state.ok()?.as_ref().map(encode), ttl: ttl? })
        };
        self.states.into_iter().filter_map(written).collect()
    }

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
        let now = quota.tick().ticks_in(self.now_us);
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

    fn state(&self, id: &StateId) -> Option<&CounterState> {
        self.states.get(id)?.0.as_ref().ok()?.as_ref()
    }

    fn keep(&mut self, id: &StateId, quota: &Quota, state: CounterState, reset: u64) {
        // Until the state is untouched, and for one more window.
        let untouched = Duration::from_micros(reset.saturating_mul(quota.tick().micros()));
        self.states.insert(id.clone(), (Ok(Some(state)), Some(untouched.saturating_add(quota.window()))));
    }
}

fn not_loaded(id: &StateId) -> Error {
    Error::new(Kind::Store, format!("the state {id} was not loaded"))
}
