//! The rules of the deny cache: what is refused from earlier refusals, what is cached, and when it is forgotten.
//!
//! Checks come in, before and after the store's decision; refusals go out. Three things end a cached refusal: its time
//! (`until`, in `table`), a change of its counter through this process (a new generation, in `slots`), and an admitted
//! request of the same counter, after which larger costs wait longer than was known.
//!
//! Invariant: a refusal is cached only if the generation of its counter is what it was before the store was called, so
//! no refusal that was decided before a refund is served after it. All methods are synchronous and hold one lock at a
//! time, never while the store is called.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use super::demand::Demand;
use super::question::{Asked, Mark, Marks, Question, is_remembered, repeats};
use super::slots::Slots;
use super::table::{Known, KnownRefusals, Other, Place, after};
use super::told::{denied, last_known};
use crate::core::decision::{Decision, Outcome, Source};
use crate::store::clock::{Clock, micros};
use crate::store::map::{CounterHasher, Fingerprints};
use crate::store::{Check, Counter, Decided, Mode, Receipt, StoreId};

/// At most so many other checks of a refused request are remembered with it.
const MOST_OTHERS: usize = 5;

/// The refusals of one store.
pub(crate) struct Refusals {
    /// The store whose refusals these are.
    id: StoreId,
    /// The cached refusals.
    kept: KnownRefusals,
    /// The generations of counters.
    slots: Slots,
    /// The hash of counters in marks and places.
    hasher: CounterHasher,
    /// What identifies the counter of a cached refusal without its text.
    fingerprints: Fingerprints,
    /// Where the time comes from.
    clock: Box<dyn Clock>,
    /// The longest a refusal is served, in microseconds.
    cap_us: u64,
    /// How many requests were refused from memory.
    from_cache: AtomicU64,
}

/// What is known of each check of a request, in their order.
type Found = SmallVec<[Option<Known>; 4]>;

impl Refusals {
    /// Returns an empty cache for `capacity` refusals of the store `id`; both `cap` and `capacity` must not be zero.
    pub(super) fn new(id: StoreId, cap: Duration, capacity: usize, clock: Box<dyn Clock>) -> Self {
        let cap_us = u64::try_from(cap.as_micros()).unwrap_or(u64::MAX);
        Self {
            id,
            kept: KnownRefusals::new(capacity, cap_us),
            slots: Slots::new(capacity),
            hasher: CounterHasher::new(),
            fingerprints: Fingerprints::new(),
            clock,
            cap_us,
            from_cache: AtomicU64::new(0),
        }
    }

    /// Returns how many requests were refused without calling the store.
    pub(crate) fn refused_from_cache(&self) -> u64 {
        self.from_cache.load(Ordering::Relaxed)
    }

    /// Returns how many refusals are kept, outlived ones included.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Refuses a request, if one of its checks is known not to fit; to be called before the store is.
    pub(crate) fn ask(&self, checks: &[Check]) -> Asked {
        let question = self.question(checks);
        if question.remembers
            && !question.looks
            && self.slots.may_be_live(question.sent)
            && let Some(refused) = self.refused(checks, &question.marks, question.sent)
        {
            return Asked::Refused(refused);
        }
        Asked::Open(question)
    }

    /// What has to be known of a request that the store decides in any case.
    ///
    /// It is asked in place of [`ask`](Self::ask) where a refusal from memory is not wanted, as in a probe.
    pub(crate) fn question(&self, checks: &[Check]) -> Question {
        let marks: Marks = checks.iter().map(|check| self.mark(check)).collect();
        let looks = checks.iter().all(|check| check.cost == 0);
        // What a shadow sees is to be decided each time, and two checks of one counter demand more
        // than each of them.
        let remembers = looks || (checks.iter().all(|check| check.mode != Mode::Shadow) && !repeats(&marks));
        Question { sent: micros(&*self.clock), marks, remembers, looks }
    }

    /// The refusal of a request that is asked of nobody.
    pub(crate) fn recall(&self, checks: &[Check]) -> Option<Decided> {
        match self.ask(checks) {
            Asked::Refused(decided) => Some(decided),
            Asked::Open(_) => None,
        }
    }

    /// The refusal of a request, if one of its checks is known not to fit.
    fn refused(&self, checks: &[Check], marks: &Marks, now: u64) -> Option<Decided> {
        let known: Found = checks.iter().zip(marks).map(|(check, mark)| self.find(check, mark, now)).collect();
        if known.iter().all(Option::is_none) {
            return None;
        }
        self.from_cache.fetch_add(1, Ordering::Relaxed);
        let outcomes = checks.iter().zip(marks).zip(&known).map(|((check, mark), found)| match found {
            Some(found) => denied(check, Demand::of(check), found, now),
            None => last_known(check, self.hash(mark, check, Demand::of(check)), &known, now),
        });
        let decision = Decision::new(outcomes, Source::DenyCache);
        Some(Decided::new(decision, Receipt::new(self.id, [])))
    }

    /// Remembers how a request was refused, if it was, and if the store itself said so.
    ///
    /// Refusals of another source, such as a fallback, teach nothing. A look is learnt from as
    /// [`learn_from_looks`](Self::learn_from_looks) says.
    pub(crate) fn learn(&self, question: &Question, checks: &[Check], decision: &Decision) {
        if question.looks {
            self.learn_from_looks(question, checks, decision);
        } else if decision.is_allowed() {
            self.note_taken(question);
        } else if decision.source() == Source::Store && question.remembers {
            self.remember(question, checks, decision);
        }
    }

    /// Where a look finds nothing left beyond its floor, a unit beyond it would be refused.
    fn learn_from_looks(&self, question: &Question, checks: &[Check], decision: &Decision) {
        let outcomes = decision.outcomes();
        if decision.source() != Source::Store || outcomes.iter().all(|outcome| outcome.remaining() > 0) {
            return;
        }
        let checks: SmallVec<[Check; 4]> = checks.iter().map(|look| look.clone().cost(1)).collect();
        let outcomes = checks.iter().zip(outcomes).map(|(check, look)| match look.remaining() {
            0 => Outcome::denied(check, 0, look.wait()).resets_after(look.reset_after()),
            _ => look.clone(),
        });
        self.remember(question, &checks, &Decision::new(outcomes, Source::Store));
    }

    /// Forgets what was refused to larger costs than one that was admitted: they wait longer now.
    fn note_taken(&self, question: &Question) {
        if self.slots.may_be_live(question.sent) {
            for mark in &question.marks {
                self.slots.forget_if_live(mark.base, question.sent);
            }
        }
    }

    /// Caches each refusing check of a request, and beside it what the first [`MOST_OTHERS`] others reported.
    fn remember(&self, question: &Question, checks: &[Check], decision: &Decision) {
        let now = micros(&*self.clock);
        let all = || checks.iter().zip(&question.marks).zip(decision.outcomes());
        let refuses = |check: &Check, outcome: &Outcome| is_remembered(check) && !outcome.is_allowed();
        let others = all().filter(|((check, _), outcome)| !refuses(check, outcome));
        let others = others.map(|((check, mark), outcome)| Other {
            hash: self.hash(mark, check, Demand::of(check)),
            remaining: outcome.remaining(),
            reset_at: after(now, outcome.reset_after()),
        });
        let others: SmallVec<[Other; 4]> = others.take(MOST_OTHERS).collect();
        let others: Option<Arc<[Other]>> = (!others.is_empty()).then(|| others.as_slice().into());
        for ((check, mark), outcome) in all().filter(|((check, _), outcome)| refuses(check, outcome)) {
            let known = Known::new(check, outcome, mark.generation, question.sent, now, self.cap_us);
            let known = Known { others: others.clone(), ..known };
            if known.until > now && self.slots.admit(mark.base, mark.generation, question.sent, known.until) {
                self.kept.put(self.place(mark, check, Demand::of(check)), known, now);
            }
        }
    }

    /// Forgets a counter now, and again when what is returned is dropped: when a change is made.
    pub(crate) fn forgetting(self: &Arc<Self>, counter: &Counter) -> Forgetting {
        let base = self.base(counter);
        self.slots.forget(base);
        Forgetting { refusals: Arc::clone(self), base }
    }

    /// Forgets a counter that is changed in the background.
    pub(crate) fn settled(&self, counter: &Counter) {
        self.slots.forget_for_a_while(self.base(counter), micros(&*self.clock));
    }

    /// Returns the live refusal that is known of a check, or of a smaller demand of its kind.
    fn find(&self, check: &Check, mark: &Mark, now: u64) -> Option<Known> {
        if !is_remembered(check) {
            return None;
        }
        let demand = Demand::of(check);
        let found = self.kept.find(self.place(mark, check, demand), demand);
        found.filter(|known| known.is_live(now, mark.generation))
    }

    /// Returns the hash of a check's counter and its generation now.
    fn mark(&self, check: &Check) -> Mark {
        let base = self.base(&check.counter);
        Mark { base, generation: self.slots.generation(base) }
    }

    /// Returns the hash of all that a refusal is found by: counter, quota, and kind of demand.
    fn hash(&self, mark: &Mark, check: &Check, demand: Demand) -> u64 {
        self.hasher.of_other((mark.base, check.counter.quota, demand.kind))
    }

    /// Returns what a refusal is found by; the fingerprint is compared where hashes are equal.
    fn place(&self, mark: &Mark, check: &Check, demand: Demand) -> Place {
        Place { hash: self.hash(mark, check, demand), counter: self.fingerprints.of(&check.counter) }
    }

    /// Returns the hash of policy and key, which is the same for all quotas.
    fn base(&self, counter: &Counter) -> u64 {
        self.hasher.of(counter)
    }
}

/// A change to a counter that is under way; forgets the counter when it is dropped.
#[derive(Debug)]
pub(crate) struct Forgetting {
    refusals: Arc<Refusals>,
    base: u64,
}

impl Drop for Forgetting {
    fn drop(&mut self) {
        self.refusals.slots.forget(self.base);
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusals")
            .field("cap_us", &self.cap_us)
            .field("from_cache", &self.from_cache)
            .finish_non_exhaustive()
    }
}
