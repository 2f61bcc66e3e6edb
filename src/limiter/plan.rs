//! The plan of one decision: its checks, and those that need a lookup first.
//!
//! Rules are named by their place in the list of all, and checks stay in that order whether or not they need a lookup,
//! as outcomes are listed in that order. The plan is generic over its lookups: those of a layer also look keys up, and
//! may refuse.

use std::future::poll_fn;
use std::task::Poll;

use smallvec::SmallVec;

use super::rule::Rule;
use crate::core::{Key, Limit, Quota};
use crate::store::{BanCheck, Check, Counter};

/// Places of rules in the list of all, ascending.
pub(crate) type Places = SmallVec<[usize; 4]>;

/// The rules that take part in one decision, and their checks.
pub(crate) struct Plan<F> {
    /// The places of the rules whose checks are known.
    pub(crate) places: Places,
    /// Their checks, in the same order.
    pub(crate) checks: SmallVec<[Check; 4]>,
    /// The checks of the other rules, which need a lookup.
    pub(crate) pending: Vec<F>,
}

/// The check of a rule whose key or quota is being looked up.
pub(crate) trait PendingCheck {
    /// What ends the request without a decision of the store.
    type Error;

    fn place(&self) -> usize;

    /// Waits for the lookup. Returns the check of the rule, or `None` if the rule does not apply.
    fn resolve(&mut self) -> impl Future<Output = Result<Option<Check>, Self::Error>> + Send;
}

impl<F> Default for Plan<F> {
    fn default() -> Self {
        Self { places: Places::new(), checks: SmallVec::new(), pending: Vec::new() }
    }
}

impl<F> Plan<F> {
    /// Adds the check of a rule whose place is after those before.
    #[inline]
    pub(crate) fn add(&mut self, place: usize, check: Check) {
        self.places.push(place);
        self.checks.push(check);
    }

    /// Runs the lookups concurrently, and inserts their checks by the places of their rules.
    ///
    /// # Errors
    ///
    /// The first refusal: the other results are not needed then.
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

/// The check of a rule before its key is known.
#[derive(Clone, Debug)]
pub(crate) struct CheckDraft {
    /// The place of the rule.
    pub(crate) place: usize,
    /// Units to take.
    pub(crate) cost: u64,
    /// The rule's limit, or that of the client's tier.
    pub(crate) limit: Limit,
    /// Whether the request may use the reserve.
    pub(crate) critical: bool,
    /// Whether the key is that of one client, which the rule may ban.
    pub(crate) bans: bool,
    /// Whether the rule does not apply, and it is only looked whether it bans the key.
    pub(crate) only_ban: bool,
}

impl CheckDraft {
    #[inline]
    pub(crate) fn new(place: usize, rule: &Rule, cost: u64) -> Self {
        Self { place, cost, limit: rule.limit(None), critical: true, bans: true, only_ban: false }
    }

    #[inline]
    pub(crate) fn with_tier(self, rule: &Rule, tier: Option<Quota>) -> Self {
        if tier.is_some() { Self { limit: rule.limit(tier), ..self } } else { self }
    }

    #[inline]
    pub(crate) fn check(self, rule: &Rule, key: Key) -> Check {
        let ban = rule.ban_check().filter(|_| self.bans);
        let ban = ban.map(|ban| if self.only_ban { BanCheck { only: true, counts: false, ..ban } } else { ban });
        let counter = Counter::of(self.limit, key);
        let quota = counter.quota();
        let floor = rule.reserve().filter(|_| !self.critical).map_or(0, |share| share.of(quota));
        let (settles, ban) = (rule.settles_by(quota), ban.map(Box::new));
        Check { counter, cost: self.cost, floor, mode: rule.mode(), settles, ban }
    }
}
