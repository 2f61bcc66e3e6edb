//! Resolution of a key for each rule into a check and a counter, at once or after a lookup. This module also peeks at
//! the checks that need no lookup.
//!
//! A flood of denied requests must not become a flood of lookups. So a peek at the checks with known keys and quotas
//! comes [first](Limits::refusal), and takes nothing. Lookups are made only for a request that these checks would
//! allow. The peek is built so that its wait is the wait of the check itself, and deny caches can cache its denial.

use std::pin::Pin;

use smallvec::SmallVec;

use super::limits::Limits;
use super::plan::{CheckDraft, PendingCheck, Plan};
use crate::core::{Decision, Error, Key, Mode, Outcome, Quota, Source};
use crate::limiter::lookup::RawValues;
use crate::store::{Ask, AskMode, Check, Counter, MaybeFuture, Receipt, Store, StoreDecision};
use crate::telemetry::Timer;

/// Whether checks are made with the overrides of the time, or each use applies its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ByOverrides {
    Yes,
    No,
}

/// Fails if a tier is not known, and its rule denies such requests.
pub(super) fn plan_for<'a>(
    limits: &'a Limits,
    places: &[usize],
    key: &Key,
    units: Option<u64>,
    overrides: ByOverrides,
) -> Result<Plan<Tier<'a>>, Error> {
    let mut plan = Plan::default();
    for &place in places {
        let rule = &limits.rules[place];
        if overrides == ByOverrides::Yes && (limits.mode(rule).is_none() || limits.exempts(rule, key)) {
            continue;
        }
        let draft = CheckDraft::new(place, rule, units.unwrap_or(rule.units()));
        let tier = rule.tiers().map_or(MaybeFuture::Ready(Ok(None)), |lookup| lookup.find(key, RawValues::default));
        match tier {
            MaybeFuture::Ready(found) => {
                if let Some(check) = limits.check_key(draft, key.clone(), found, overrides)? {
                    plan.add(place, check);
                }
            }
            MaybeFuture::Pending(pending) => {
                plan.pending.push(Tier { limits, draft, key: key.clone(), pending, overrides });
            }
        }
    }
    Ok(plan)
}

impl Limits {
    /// `None` if the rule does not apply without a tier. Fails if the request is denied without one.
    #[inline]
    pub(crate) fn check(
        &self,
        mut draft: CheckDraft,
        key: Key,
        found: Result<Option<Quota>, Error>,
    ) -> Result<Option<Check>, Error> {
        let rule = &self.rules[draft.place];
        let tier = match (found, rule.tiers()) {
            (Ok(tier), _) => tier,
            (Err(_), None) => None,
            (Err(error), Some(lookup)) => {
                self.telemetry.unknown_tier(rule.name());
                match lookup.without_result(rule.name().as_str(), draft.limit.quota, error)? {
                    Some(quota) => Some(quota),
                    // A ban belongs to the key, whatever its quota.
                    None if draft.bans && rule.banning().is_some() => {
                        return Ok(Some(CheckDraft { only_ban: true, cost: 0, ..draft }.check(rule, key)));
                    }
                    None => return Ok(None),
                }
            }
        };
        draft.set_tier(rule, tier);
        Ok(Some(draft.check(rule, key)))
    }

    /// In shadow mode a rule never denies.
    fn check_key(
        &self,
        draft: CheckDraft,
        key: Key,
        found: Result<Option<Quota>, Error>,
        overrides: ByOverrides,
    ) -> Result<Option<Check>, Error> {
        let rule = &self.rules[draft.place];
        let mode = if overrides == ByOverrides::Yes { self.mode(rule) } else { Some(rule.mode()) };
        let check = self
            .check(draft, key, found)
            .or_else(|error| if mode == Some(Mode::Enforce) { Err(error) } else { Ok(None) });
        match overrides {
            ByOverrides::Yes => Ok(check?.and_then(|check| self.overridden(check))),
            ByOverrides::No => check,
        }
    }
}

pub(super) async fn counter(limits: &Limits, place: usize, key: &Key) -> Result<Counter, Error> {
    let rule = &limits.rules[place];
    let tier = match rule.tiers() {
        Some(lookup) => lookup.find(key, RawValues::default).wait().await?,
        None => None,
    };
    let mut draft = CheckDraft::new(place, rule, 0);
    draft.set_tier(rule, tier);
    Ok(draft.check(rule, key.clone()).counter)
}

pub(super) async fn looks(
    limits: &Limits,
    places: &[usize],
    key: &Key,
    overrides: ByOverrides,
) -> Result<SmallVec<[Check; 4]>, Error> {
    let mut plan = plan_for(limits, places, key, Some(0), overrides)?;
    plan.look_up().await?;
    Ok(plan.checks)
}

pub(super) struct Tier<'a> {
    limits: &'a Limits,
    draft: CheckDraft,
    key: Key,
    pending: Pin<Box<dyn Future<Output = Result<Option<Quota>, Error>> + Send>>,
    overrides: ByOverrides,
}

impl PendingCheck for Tier<'_> {
    type Error = Error;

    fn place(&self) -> usize {
        self.draft.place
    }

    async fn resolve(&mut self) -> Result<Option<Check>, Error> {
        let found = self.pending.as_mut().await;
        self.limits.check_key(self.draft.clone(), self.key.clone(), found, self.overrides)
    }
}

impl Limits {
    /// Takes nothing, and calls the store at most once. `None` if the checks are allowed.
    pub(super) async fn refusal(&self, checks: &[Check]) -> Option<(Timer, Result<StoreDecision, Error>)> {
        if !checks.iter().any(may_refuse) {
            return None;
        }
        let timer = self.telemetry.start();
        let looks: SmallVec<[Check; 2]> = checks.iter().map(look).collect();
        let looked = self.store.decide(&looks, Ask::default().mode(AskMode::Cached)).wait().await;
        let StoreDecision { decision, receipt } = match looked {
            Ok(looked) => looked,
            Err(error) => return Some((timer, Err(error))),
        };
        let outcomes = checks.iter().zip(decision.outcomes()).map(|(check, look)| match decision.source() {
            // The outcome of the unit that the peek stands for.
            Source::DenyCache if check.cost > 0 => look.clone(),
            Source::Override => look.clone(),
            _ => as_decided(check, look),
        });
        let decision = Decision::new(outcomes, decision.source());
        let nothing = Receipt::empty(receipt.store());
        (!decision.is_allowed()).then(|| (timer, Ok(StoreDecision::new(decision, nothing))))
    }
}

fn may_refuse(check: &Check) -> bool {
    check.mode == Mode::Enforce && (check.cost > 0 || check.is_only_for_ban())
}

/// Has units left exactly if the check is allowed, because all units of the cost but one become floor.
fn look(check: &Check) -> Check {
    let more = if by_slots(check) { 0 } else { check.cost.saturating_sub(1) };
    let mut look = check.clone().cost(0).floor(check.floor.saturating_add(more));
    // A denial by the peek denies the request. In shadow mode the decision follows, which strikes by itself.
    if let Some(ban) = look.ban.as_mut() {
        ban.tests = may_refuse(check) && check.cost > 0;
    }
    look
}

/// Returns `true` for a queue's check, decided by its first free slot, whatever the cost.
fn by_slots(check: &Check) -> bool {
    check.counter.quota().decides_by_floor(check.cost, check.floor)
}

fn as_decided(check: &Check, look: &Outcome) -> Outcome {
    if look.is_banned() || check.cost == 0 {
        return look.clone();
    }
    let (reset, minutes) = (look.reset_after(), look.window_minutes());
    if look.remaining() == 0 {
        // For a cost above 1 the peek does not contain how many units are left.
        return Outcome::denied(check, 0, look.wait()).with_reset_after(reset).with_window_minutes(minutes);
    }
    let more = if by_slots(check) { 0 } else { check.cost.saturating_sub(1) };
    Outcome::allowed(check, look.remaining().saturating_add(more)).with_reset_after(reset).with_window_minutes(minutes)
}
