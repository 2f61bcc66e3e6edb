//! Never more is admitted in a window than the limit: of the requests that surely were decided within it, by the store;
//! nor by a share, without it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use tollgate::policy::Algorithm;
use tollgate::store::Mode;
use tollgate::{Quota, Source};

use super::super::State;
use super::super::caller::Record;
use super::super::plan::{Around, PolicyPlan};

/// Units that were admitted.
struct Taken {
    began: Instant,
    decided: Instant,
    /// When its slots may be free.
    ended: Option<Instant>,
    /// At least.
    units: u64,
    /// May yet be refunded, or were.
    returns: u64,
    cost: u64,
    quota: Quota,
    is_leased: bool,
}

/// What is counted together: by the store, or by the share of a process; and by which user, if by any.
type Counted = (Option<usize>, Option<u8>);

impl State {
    pub(super) fn checks_limits(&mut self) {
        for place in 0..self.plan.setting.policies.len() {
            let policy = self.plan.setting.policies[place].clone();
            let mut groups: BTreeMap<Counted, Vec<Taken>> = BTreeMap::new();
            for record in &self.records {
                if let Some((by, taken)) = self.taken(record, place, &policy) {
                    groups.entry((by, policy.by_user.then_some(record.user))).or_default().push(taken);
                }
            }
            for (counted, taken) in groups {
                let wrong = if policy.algorithm == Algorithm::Concurrency {
                    self.wrong_of_slots(&policy, &taken)
                } else {
                    self.wrong_of_spans(&taken, counted.0).or_else(|| self.wrong_of_windows(&policy, &taken, counted))
                };
                if let Some(wrong) = wrong {
                    self.violate(format_args!("policy {place}, {counted:?}: {wrong}"));
                }
            }
        }
    }

    /// What a request has taken, and whose share it was if it was one.
    fn taken(&self, record: &Record, place: usize, policy: &PolicyPlan) -> Option<(Option<usize>, Taken)> {
        let ((outcome, source), around) = (record.outcome(place)?, self.plan.setting.processes[record.process].around);
        let process = &self.plan.setting.processes[record.process];
        let is_counted = record.is_admitted && outcome.is_allowed() && outcome.mode() == Mode::Enforce;
        // Debts may be given up whose charge was not replied to; ratios keep limits on the whole.
        let by = match (source, around) {
            (Source::Store | Source::Lease, Around::Plain | Around::Lease) => None,
            (Source::Fallback, Around::Plain | Around::Lease | Around::Overdraft) => Some(record.process),
            _ => return None,
        };
        let (cost, quota) = (record.cost, *outcome.quota());
        let returned = if policy.metered { record.refunded.min(cost) } else { 0 };
        let may_return = policy.successes && record.status != Some(200) || policy.refund_dropped && record.has_left;
        let returns = if may_return { cost } else { returned };
        let quota = match by {
            Some(_) => quota.share(0, std::num::NonZeroU32::new(process.instances)?),
            None => quota,
        };
        let (began, decided, ended, units) = (record.began, record.decided?, record.ended, cost - returns);
        let is_leased = around != Around::Plain;
        is_counted.then_some((by, Taken { began, decided, ended, units, returns, cost, quota, is_leased }))
    }

    /// What is wrong of any span between two requests.
    fn wrong_of_spans(&self, taken: &[Taken], by: Option<usize>) -> Option<String> {
        taken.iter().find_map(|first| {
            // Refunds of requests before it may make room for others.
            let refunds: u64 = taken
                .iter()
                .filter(|one| one.began < first.began || one.decided > first.decided)
                .map(|one| one.returns)
                .sum();
            taken.iter().find_map(|last| {
                let span = last.decided.checked_duration_since(first.began)?;
                if by.is_none() && self.is_disturbed(first.began, last.decided) {
                    return None;
                }
                let within = taken.iter().filter(|one| one.began >= first.began && one.decided <= last.decided);
                let (mut units, mut most) = (0, refunds);
                for one in within {
                    units += one.units;
                    most = most.max(refunds + most_of(one, span, by.is_some()));
                }
                (units > most).then(|| format!("{units} units are admitted within {span:?}, and may be {most}"))
            })
        })
    }

    /// What is wrong of windows that begin at multiples of their length.
    fn wrong_of_windows(&self, policy: &PolicyPlan, taken: &[Taken], (by, user): Counted) -> Option<String> {
        let is_aligned = matches!(policy.algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
        if !is_aligned || by.is_some() {
            return None;
        }
        let length = policy.window_ms * 1_000;
        // In Kathmandu, it is three quarters of an hour later.
        let window_of = |at: Instant| (self.clock_us(at) + if policy.is_hourly { length / 4 * 3 } else { 0 }) / length;
        let era_of = |at: Instant| self.disturbed.iter().filter(|(start, _)| *start <= at).count();
        let mut windows: BTreeMap<(u64, i64, usize), (u64, u64, u64)> = BTreeMap::new();
        for one in taken {
            let window = window_of(one.began);
            if window == window_of(one.decided) && !self.is_disturbed(one.began, one.decided) {
                let sum = windows.entry((window, self.ahead_us(one.began), era_of(one.began))).or_default();
                *sum = (sum.0 + one.units, sum.1 + one.returns, sum.2.max(one.quota.limit()));
            }
        }
        windows.into_iter().find_map(|((window, _, era), (units, returns, limit))| {
            // The refund of a request whose counter was lost since makes room for others, even if nobody saw its reply.
            let is_lost = |record: &&Record| window_of(record.began) == window && era_of(record.began) < era;
            let of_user = self.records.iter().filter(|record| user.is_none_or(|user| record.user == user));
            let lost: u64 = of_user.filter(is_lost).map(|record| record.cost).sum();
            (units > limit + returns + lost).then(|| format!("{units} units are admitted in a window of {limit}"))
        })
    }

    /// What is wrong of slots that are held at once. They live for a while, even if they cannot be renewed.
    fn wrong_of_slots(&self, policy: &PolicyPlan, taken: &[Taken]) -> Option<String> {
        let life = Duration::from_millis(policy.window_ms);
        taken.iter().find_map(|one| {
            let at = one.decided;
            let is_held = |other: &&Taken| {
                let is_now = other.decided <= at && other.ended.is_none_or(|ended| ended > at);
                let lives = at.duration_since(other.began) < life || self.is_calm_since(other.began);
                is_now && lives && !self.is_disturbed(other.began, at)
            };
            // Of a share, nobody holds more than all. The last of them was admitted by its own limit, which may be newer.
            let (mut held, mut most) = (0, one.quota.limit());
            for other in taken.iter().filter(is_held) {
                held += other.cost.min(other.quota.limit());
                most = most.max(other.quota.limit());
            }
            (held > most).then(|| format!("{held} slots are held, of {most}"))
        })
    }
}

/// The most units of a span, of a request's quota.
fn most_of(one: &Taken, span: Duration, is_share: bool) -> u64 {
    let (quota, window) = (&one.quota, one.quota.window().as_micros());
    let is_bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
    // A lease may be taken so long before it is spent.
    let span = span.as_micros() + if one.is_leased { (window / 10).min(1_000_000) } else { 0 };
    // What is longer than a share is admitted when that is full, in a window of its own or as a debt.
    let limit = u128::from(if is_share && !is_bucket { quota.limit().max(one.cost) } else { quota.limit() });
    let units = match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            u128::from(quota.capacity()) + (limit * span).div_ceil(window)
        }
        Algorithm::SlidingLog => limit * (span / window + 1),
        _ => limit * (span.div_ceil(window) + 1),
    };
    // The last of a leaky bucket may be longer than what is left.
    let more = if is_share || quota.algorithm() == Algorithm::LeakyBucket { one.cost } else { 0 };
    u64::try_from(units).unwrap_or(u64::MAX).saturating_add(more + 1)
}
