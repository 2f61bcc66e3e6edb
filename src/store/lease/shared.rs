//! What all clones of a lease store share, and the way of a request that leases pay.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use tokio::sync::Semaphore;

use super::builder::LeaseStoreBuilder;
use super::counts::LeaseCounts;
use super::entry::{Back, Entry};
use super::grant::{MOST_CALLS, Want};
use super::lot::{lifetime, micros};
use super::plain::is_plain;
use super::shard::Shard;
use super::shards::{Locked, Shards};
use crate::Quota;
use crate::core::decision::{Decision, Source};
use crate::store::{Check, Clock, Counter, Decided, Receipt, Store, StoreId, Taken};

pub(super) struct Shared {
    pub(super) id: StoreId,
    pub(super) inner: Arc<dyn Store>,
    /// Whose receipts leases have.
    pub(super) inner_id: OnceLock<StoreId>,
    pub(super) shards: Shards<Shard>,
    pub(super) calls: Arc<Semaphore>,
    pub(super) next_call: AtomicU64,
    pub(super) next_sweep: AtomicU64,
    /// A task sweeps.
    pub(super) swept: AtomicBool,
    pub(super) closed: AtomicBool,
    share: f64,
    clock: Box<dyn Clock>,
}

/// What came of a request, while the locks were held.
#[derive(Default)]
struct Paid {
    decided: Option<Decided>,
    wants: SmallVec<[Want; 2]>,
    backs: Vec<Back>,
}

impl Shared {
    pub(super) fn new(settings: LeaseStoreBuilder) -> Self {
        let LeaseStoreBuilder { inner, share, capacity, clock } = settings;
        Self {
            id: StoreId::new(),
            inner,
            inner_id: OnceLock::new(),
            shards: Shards::new(capacity, Shard::new),
            calls: Arc::new(Semaphore::new(MOST_CALLS as usize)),
            next_call: AtomicU64::new(1),
            next_sweep: AtomicU64::new(0),
            swept: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            share,
            clock,
        }
    }

    pub(super) fn now(&self) -> u64 {
        micros(self.clock.now())
    }

    /// Units of a counter that are held here.
    pub(super) fn held(&self, counter: &Counter) -> u64 {
        let (hash, now) = (self.shards.hash(counter), self.now());
        self.shards.lock(hash).find(hash, counter).map_or(0, |entry| entry.held(now))
    }

    pub(super) fn counts(&self) -> LeaseCounts {
        let mut counts = LeaseCounts::default();
        self.shards.each().for_each(|shard| counts += shard.counts);
        counts
    }

    /// Admits a request that leases pay in full. Leases are asked for on the way.
    pub(super) fn admit(self: &Arc<Self>, checks: &[Check]) -> Option<Decided> {
        if self.closed.load(Ordering::Relaxed) {
            return None;
        }
        let now = self.now();
        // Before looks too: they are to find what an idle key has given back.
        self.sweep_if_due(now);
        if !is_plain(checks) {
            return None;
        }
        let Paid { decided, wants, backs } = self.pay(checks, now, true);
        self.give_back(backs, now);
        let came = wants.into_iter().filter(|want| self.ask(want.clone(), false)).count() > 0;
        if decided.is_some() || !came {
            return decided;
        }
        let Paid { decided, backs, .. } = self.pay(checks, now, false);
        self.give_back(backs, now);
        decided
    }

    /// Pays for all checks or none, under the locks of all. Demand is noted only of requests whose
    /// keys all are hot: the others cannot be paid by leases, however many there were.
    fn pay(&self, checks: &[Check], now: u64, first: bool) -> Paid {
        if let [check] = checks {
            return self.pay_one(check, now, first);
        }
        let mut paid = Paid::default();
        let mut locked = self.shards.lock_all(checks);
        let (mut hot, mut covered) = (true, true);
        for (index, check) in checks.iter().enumerate() {
            let (hash, shard) = locked.of(index);
            let Some(entry) = shard.heat(hash, &check.counter, now) else {
                hot = false;
                continue;
            };
            entry.refresh(&check.counter.quota, now, &mut paid.backs);
            covered &= entry.covers(check.cost, now);
        }
        if hot && covered {
            paid.decided = Some(self.spend(&mut locked, checks, now));
        }
        if hot && first {
            paid.wants = self.note(&mut locked, checks, now);
        }
        paid
    }

    /// As [`pay`](Self::pay), for what most requests ask: with one look into one shard.
    fn pay_one(&self, check: &Check, now: u64, first: bool) -> Paid {
        let mut paid = Paid::default();
        let hash = self.shards.hash(&check.counter);
        let mut shard = self.shards.lock(hash);
        let Some(entry) = shard.heat(hash, &check.counter, now) else { return paid };
        entry.refresh(&check.counter.quota, now, &mut paid.backs);
        let spent = entry.covers(check.cost, now).then(|| entry.spend(check, now));
        if first {
            paid.wants.extend(self.note_one(entry, check, now));
        }
        let Some((outcome, taken)) = spent else { return paid };
        shard.counts.spent += check.cost;
        drop(shard);
        let decision = Decision::of_one(outcome, Source::Lease);
        paid.decided = Some(Decided { decision, receipt: Receipt::of_one(self.id, taken) });
        paid
    }

    fn spend(&self, locked: &mut Locked<'_, Shard>, checks: &[Check], now: u64) -> Decided {
        let mut taken: SmallVec<[Taken; 1]> = SmallVec::with_capacity(checks.len());
        let outcomes = checks.iter().enumerate().map(|(index, check)| {
            let (hash, shard) = locked.of(index);
            shard.counts.spent += check.cost;
            let (outcome, part) = shard.find(hash, &check.counter).expect("it is hot").spend(check, now);
            taken.push(part);
            outcome
        });
        let decision = Decision::new(outcomes, Source::Lease);
        Decided { decision, receipt: Receipt::new(self.id, taken) }
    }

    /// Notes what is asked; returns the leases to ask for.
    fn note(&self, locked: &mut Locked<'_, Shard>, checks: &[Check], now: u64) -> SmallVec<[Want; 2]> {
        let mut wants = SmallVec::new();
        for (index, check) in checks.iter().enumerate() {
            let (hash, shard) = locked.of(index);
            let entry = shard.find(hash, &check.counter);
            wants.extend(entry.and_then(|entry| self.note_one(entry, check, now)));
        }
        wants
    }

    fn note_one(&self, entry: &mut Entry, check: &Check, now: u64) -> Option<Want> {
        let quota = &check.counter.quota;
        entry.rate.note(now, lifetime(quota), check.cost);
        let units = entry.wants(check.cost, self.most(quota), now)?;
        let call = self.next_call.fetch_add(1, Ordering::Relaxed);
        entry.asking = Some(call);
        Some(Want { hash: entry.hash, counter: entry.counter.clone(), units, call })
    }

    /// The most units this process holds of a counter.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of an integer below 2^52"
    )]
    fn most(&self, quota: &Quota) -> u64 {
        (quota.limit().min(quota.capacity()) as f64 * self.share) as u64
    }

    /// What a counter's leases hold is forgotten.
    pub(super) fn forget(&self, counter: &Counter) {
        let hash = self.shards.hash(counter);
        let mut shard = self.shards.lock(hash);
        let Some(entry) = shard.remove(hash, counter) else { return };
        shard.counts.lost += entry.lots.iter().map(|lot| lot.left).sum::<u64>();
        drop(shard);
        entry.lots.into_iter().for_each(|lot| lot.forget(&*self.inner));
    }
}
