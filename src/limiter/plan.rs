//! Plan of one decision: its checks, and the checks that need a lookup first.
//!
//! Rules are named by their index in the list of all. Checks stay in that order whether or not they need a lookup,
//! because outcomes are listed in that order. The plan is generic over its lookups, because a layer's lookups also look
//! keys up, and may deny.

use std::future::poll_fn;
use std::task::Poll;

use smallvec::SmallVec;

use super::rule::Rule;
use crate::core::{Key, Limit, Overridden, Quota};
use crate::store::{BanCheck, Check, Counter};

/// Indexes of rules in the list of all, ascending.
pub(crate) type Places = SmallVec<[usize; 4]>;

pub(crate) struct Plan<F> {
    pub(crate) places: Places,
    /// In the order of `places`.
    pub(crate) checks: SmallVec<[Check; 4]>,
    pub(crate) pending: Vec<F>,
}

pub(crate) trait PendingCheck {
    type Error;

    fn place(&self) -> usize;

    /// Waits for the lookup. `None` if the rule does not apply.
    fn resolve(&mut self) -> impl Future<Output = Result<Option<Check>, Self::Error>> + Send;
}

impl<F> Default for Plan<F> {
    fn default() -> Self {
        Self { places: Places::new(), checks: SmallVec::new(), pending: Vec::new() }
    }
}

impl<F> Plan<F> {
    /// Rules must be added in ascending order.
    #[inline]
    pub(crate) fn add(&mut self, place: usize, check: Check) {
        self.places.push(place);
        self.checks.push(check);
    }

    /// Runs the lookups concurrently, and inserts their checks in order. Stops at the first denial.
    pub(crate) async fn look_up(&mut self) -> Result<(), F::Error>
    where
        F: PendingCheck,
    {
        let Self { places, checks, pending } = self;
        let lookups = pending.iter_mut().map(|check| (check.place(), Box::pin(check.resolve())));
        let mut lookups: Vec<_> = lookups.collect();
        poll_fn(|cx| {
            let mut refused = None;
            lookups.retain_mut(|(place, lookup)| match lookup.as_mut().poll(cx) {
                Poll::Ready(Ok(check)) => {
                    if let Some(check) = check {
                        let index = places.partition_point(|before| before < place);
                        places.insert(index, *place);
                        checks.insert(index, check);
                    }
                    false
                }
                Poll::Ready(Err(refusal)) => {
                    refused.get_or_insert(refusal);
                    false
                }
                Poll::Pending => true,
            });
            match refused {
                Some(refusal) => Poll::Ready(Err(refusal)),
                None if lookups.is_empty() => Poll::Ready(Ok(())),
                None => Poll::Pending,
            }
        })
        .await
    }
}

#[derive(Clone, Debug)]
pub(crate) struct CheckDraft {
    pub(crate) place: usize,
    pub(crate) cost: u64,
    pub(crate) limit: Limit,
    pub(crate) critical: bool,
    pub(crate) bans: bool,
    /// `true` if the rule does not apply, and the check only peeks at its ban.
    pub(crate) only_ban: bool,
}

impl CheckDraft {
    #[inline]
    pub(crate) fn new(place: usize, rule: &Rule, cost: u64) -> Self {
        Self { place, cost, limit: rule.limit(None), critical: true, bans: true, only_ban: false }
    }

    #[inline]
    pub(crate) fn set_tier(&mut self, rule: &Rule, tier: Option<Quota>) {
        if tier.is_some() {
            self.limit = rule.limit(tier);
        }
    }

    #[allow(clippy::unnecessary_box_returns, reason = "few rules have a ban, and others should not pass its code")]
    #[inline(never)]
    fn ban(&self, ban: &BanCheck) -> Box<BanCheck> {
        let ban = ban.clone();
        Box::new(if self.only_ban { BanCheck { only: true, counts: false, ..ban } } else { ban })
    }

    #[inline]
    pub(crate) fn check(self, rule: &Rule, key: Key) -> Check {
        let ban = rule.ban_check().filter(|_| self.bans).map(|ban| self.ban(ban));
        let counter = Counter::from_limit(self.limit, key);
        let quota = counter.quota();
        let floor = rule.reserve().filter(|_| !self.critical).map_or(0, |share| share.units(quota));
        let settles = rule.settles_by(quota);
        Check { counter, cost: self.cost, floor, mode: rule.mode(), settles, ban, overridden: Overridden::No }
    }
}
