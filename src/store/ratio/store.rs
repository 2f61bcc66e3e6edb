//! The ratio store and its settings.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::bounds::{DEFAULT_LIFE, DEFAULT_TICK, check_life, check_policy, check_report, check_shards, check_tick};
use super::decide::decide;
use super::shared::{Settings, Shared, is_of};
use super::tally::Tally;
use super::ticking::{close, start};
use crate::core::{Error, PolicyName, Requirement};
use crate::random;
use crate::store::around::settle_each;
use crate::store::{
    Answer, Applied, Ask, Capabilities, Change, Check, Counter, Decided, Receipt, Settlement, Settling, Store,
};

const DEFAULT_REPORT: usize = 256;
const DEFAULT_CAPACITY: usize = 10_000;

/// A store that calls no server for a request: it admits the share of each key's requests that fits the limit of all
/// processes.
///
/// **The law**: every process counts what it is *offered*, and reports it to a [`Tally`] once in each tick, 1 s by
/// default. From the totals of all processes each computes the same drop ratio, 1 - limit / offered, and drops that share
/// of its requests at random. Requests with a [reserve](crate::Policy::reserve) that they may use are dropped only if
/// they alone exceed the limit.
///
/// **The lag**: a ratio is up to 3 ticks old. Under steady load, 10 s means are within 5% of the limit from the fourth
/// tick on if a tick admits 1,000 requests, within 8% if it admits 100, and from 30% below to 40% above it if it admits
/// 10; a limit of fewer than 10 units a tick is an error when a layer is built. A burst from nothing passes for up to 3
/// ticks, in each of which a process admits at most its burst and what the limit gains in a tick. Load that changes
/// faster than in 3 ticks is limited badly: use a [`LeaseStore`](crate::LeaseStore) for it.
///
/// **The cost**: one call a process and tick, however many requests there are; none after 60 ticks (or a life, if that
/// is longer) without a request. No request waits.
///
/// **Without the tally**: the last ratios hold for their life, 10 ticks by default. From then on, and before the first
/// totals, each process admits its share of each limit: the limit divided by the number of processes that reported last,
/// or by [`instances`](RatioStoreBuilder::instances) if that is more.
///
/// **Several policies** of one layer are a cascade in their order: a policy is offered what the enforced ones before it
/// admit. Put narrow policies first. For an exact limit of each user beside a global one, nest two layers, the exact one
/// outside.
///
/// Limits are rates: of token buckets, fixed and sliding windows of up to 60 s; a burst only bounds what one process
/// admits before it knows a ratio. There are no refunds, no bans and no changes of counters, and a
/// [reset](Change::Reset) is one of this process. The time to retry is a [guess](crate::Outcome::retry_is_guess).
///
/// All processes need the same ticks, shards and limits. Reports need a tokio runtime: until the store is used in one,
/// each process admits its share.
///
/// # Examples
///
/// ```
/// use tollgate::store::MemoryTally;
/// use tollgate::{Policy, Quota, RateLimitLayer, RatioStore, key};
///
/// let policy = Policy::new("all", Quota::per_second(50_000)).key(key::global());
/// let layer = RateLimitLayer::new(RatioStore::new(MemoryTally::new()), policy);
/// # let _ = layer;
/// ```
#[derive(Clone)]
pub struct RatioStore {
    shared: Arc<Shared>,
}

/// Settings of a [`RatioStore`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::RatioStore;
/// use tollgate::store::MemoryTally;
///
/// let settings = RatioStore::builder(MemoryTally::new()).tick(Duration::from_millis(500)).report(64);
/// assert!(settings.build().is_ok());
/// ```
#[must_use]
pub struct RatioStoreBuilder {
    tally: Box<dyn Tally>,
    tick: Duration,
    life: Option<Duration>,
    report: usize,
    capacity: usize,
    shards: u8,
    instances: NonZeroU32,
    fair: Option<(String, String)>,
    seed: Option<u64>,
}

impl RatioStore {
    /// Creates a store with ratios from `tally` and the default settings.
    ///
    /// In a tokio runtime it calls the tally at once, as [`build`](RatioStoreBuilder::build) does.
    #[allow(clippy::missing_panics_doc, reason = "the default settings are valid")]
    pub fn new(tally: impl Tally) -> Self {
        Self::builder(tally).build().expect("the default settings are valid")
    }

    /// Returns settings of a store with ratios from `tally`: ticks of 1 s, a life of 10 ticks, and reports of 256
    /// counters.
    pub fn builder(tally: impl Tally) -> RatioStoreBuilder {
        RatioStoreBuilder {
            tally: Box::new(tally),
            tick: DEFAULT_TICK,
            life: None,
            report: DEFAULT_REPORT,
            capacity: DEFAULT_CAPACITY,
            shards: 1,
            instances: NonZeroU32::MIN,
            fair: None,
            seed: None,
        }
    }

    /// Returns the drop ratio of a counter's requests, of those that may not use the reserve: from 0 to 1. `None` if
    /// none is known.
    pub fn ratio(&self, counter: &Counter) -> Option<f64> {
        let hash = self.shared.hash(counter);
        let part = self.shared.parts.lock(hash);
        let moment = self.shared.moment(Instant::now(), part.since);
        let entry = part.find(hash, counter).filter(|_| self.shared.is_known(moment.now));
        entry.and_then(|entry| entry.ratio(&moment))
    }

    /// Forgets the ratio and the share of a counter in this process.
    fn reset(&self, counter: &Counter) -> Answer<Result<Applied, Error>> {
        let hash = self.shared.hash(counter);
        let found = self.shared.parts.lock(hash).table.remove(hash, |entry| is_of(entry, counter)).is_some();
        let locally = self.shared.local.adjust(counter, Change::Reset);
        locally.map(move |applied| applied.map(|of| Applied { units: of.units.max(found.into()), ..of }))
    }

    /// Returns how many processes reported in the last tick; `None` if that is not known, as before the first totals and
    /// a life after the last ones.
    pub fn live(&self) -> Option<u64> {
        self.shared.is_known(Instant::now()).then(|| self.shared.live())
    }

    /// Reports once more, and ends the task of all clones. From then on this process admits its share of each limit, so
    /// that it goes on to serve while it drains.
    ///
    /// Outside of a tokio runtime, it leaves the last report to the one from which requests came, and does not wait for
    /// it.
    ///
    /// # Cancellation
    ///
    /// The last report may be lost if the future is dropped; the task ends all the same.
    pub async fn close(&self) {
        close(&self.shared).await;
    }
}

impl RatioStoreBuilder {
    /// Sets how often this process reports, instead of every second: whole milliseconds from 100 ms to 60 s. It is the
    /// same in all processes.
    pub fn tick(self, tick: Duration) -> Self {
        Self { tick, ..self }
    }

    /// Sets how long the last ratio holds if the tally does not reply, instead of 10 ticks: from 2 to 600 ticks.
    pub fn life(self, life: Duration) -> Self {
        Self { life: Some(life), ..self }
    }

    /// Sets how many counters a report has at most in each shard, instead of 256: from 1 to 512. The others are limited
    /// by the share of this process.
    pub fn report(self, counters: usize) -> Self {
        Self { report: counters, ..self }
    }

    /// Sets how many keys are kept at most, instead of 10,000; 0 is taken as 1. Further ones are limited by the share of
    /// this process, until the next tick, in which keys with few requests make room.
    pub fn capacity(self, keys: usize) -> Self {
        Self { capacity: keys.max(1), ..self }
    }

    /// Sets into how many shards the tally divides counters, instead of 1: from 1 to 16, the same in all processes. On a
    /// Redis Cluster they are in different slots.
    pub fn shards(self, shards: u8) -> Self {
        Self { shards, ..self }
    }

    /// Sets by how many processes limits are divided while no ratios are known, by default 1; it is the number that
    /// reported last if that is more.
    pub fn instances(self, instances: NonZeroU32) -> Self {
        Self { instances, ..self }
    }

    /// Divides the drops of `policy` among callers, which are the keys of policy `caller`, so that small callers are
    /// not dropped for a large one.
    ///
    /// Each caller is admitted up to a level, the same for all in this process. It moves drops only within a process, so
    /// it needs requests of each caller to be spread over all of them. Requests without a check of `caller` are dropped
    /// alike. At most 64 callers of a key are counted; of further ones the smallest share a count.
    pub fn fair(self, policy: &str, caller: &str) -> Self {
        Self { fair: Some((policy.to_owned(), caller.to_owned())), ..self }
    }

    /// Sets the seed of all random numbers, so that a test repeats itself: which requests are dropped, and when this
    /// process reports.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Builds the store. In a tokio runtime it calls the tally at once, to learn what other processes drop.
    ///
    /// # Errors
    ///
    /// If a setting is outside of its bounds, or a name that [`fair`](Self::fair) set is not that of a policy.
    pub fn build(self) -> Result<RatioStore, Error> {
        let Self { tick, report, shards, .. } = self;
        check_tick(tick)?;
        let life = self.life.unwrap_or(tick * DEFAULT_LIFE);
        check_life(Some(tick), life)?;
        check_report(u64::try_from(report).unwrap_or(u64::MAX))?;
        check_shards(shards.into())?;
        let name = |name: String| PolicyName::try_from(name.as_str());
        let fair = self.fair.map(|(policy, by)| Ok::<_, Error>((name(policy)?, name(by)?))).transpose()?;
        let (capacity, instances) = (self.capacity, u64::from(self.instances.get()));
        let seed = self.seed.unwrap_or_else(|| random::up_to(u64::MAX));
        let settings = Settings { tick, life, report, capacity, shards, instances, fair, seed };
        let shared = Arc::new(Shared::new(self.tally, settings));
        // So that hot keys are known before the first request.
        start(&shared, Instant::now());
        Ok(RatioStore { shared })
    }
}

impl Store for RatioStore {
    fn decide(&self, checks: &[Check], _: Ask) -> Answer<Result<Decided, Error>> {
        Answer::Ready(decide(&self.shared, checks))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        if receipt.store() == self.shared.local.id() {
            return self.shared.local.settle(receipt, changes);
        }
        settle_each(&receipt, changes, |_, taken, _| Answer::Ready(Ok(vec![Applied::new(0, taken.stamp)])))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        if change == Change::Reset {
            return self.reset(counter);
        }
        Answer::Ready(Err(Error::invalid(format!(
            "policy {:?} is limited by a ratio, and has no counter to change: use another store for it",
            counter.policy().as_str()
        ))))
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        let tick = self.shared.settings.tick;
        requirements.iter().try_for_each(|requirement| check_policy(requirement, Some(tick)))?;
        let capabilities = Capabilities::default().id(self.shared.id);
        let Some((policy, by)) = &self.shared.settings.fair else { return Ok(capabilities) };
        let has = |name: &PolicyName| requirements.iter().any(|requirement| requirement.policy == name);
        match [policy, by].into_iter().find(|name| has(policy) && !has(name)) {
            Some(name) => Err(Error::invalid(format!(
                "policy {:?} is dropped by callers of {:?}, which is no policy of the same layer: add it, or change `fair`",
                policy.as_str(),
                name.as_str()
            ))),
            None => Ok(capabilities),
        }
    }
}

impl fmt::Debug for RatioStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RatioStore")
            .field("tick", &self.shared.settings.tick)
            .field("life", &self.shared.settings.life)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RatioStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RatioStoreBuilder")
            .field("tick", &self.tick)
            .field("life", &self.life)
            .field("report", &self.report)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}
