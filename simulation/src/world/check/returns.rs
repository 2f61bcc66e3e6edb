//! The waits that refusals have are true, also those of cached ones; and units that are refunded may be taken at once.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tollgate::policy::Algorithm;
use tollgate::{Decision, Source};

use super::super::World;
use super::super::client::{Client, NAMES};
use super::super::plan::Around;
use super::WAYS;

/// Waits that are longer are not waited for.
const LONGEST: Duration = Duration::from_secs(20);

/// How long a call and its reply are on their ways at most while nothing is wrong, with a grain of timers.
const CALL: Duration = Duration::from_millis(30);

/// Refusals after so many admitted requests, of a third of the limit each.
const MOST: u32 = 8;

impl World {
    /// Who is refused, at the end of a run, waits as long as it is told to, and asks before and then.
    pub(super) async fn checks_waits(&self, client: &Client) {
        let setting = self.lock().plan.setting.clone();
        let refunds = self.lock().plan.seed.is_multiple_of(3) && !self.lock().is_replaced;
        let is_plain = setting.processes.iter().all(|process| process.around == Around::Plain);
        for (place, (policy, name)) in setting.policies.iter().zip(NAMES).enumerate() {
            if !is_plain || policy.algorithm == Algorithm::Concurrency || policy.ban.is_some() || policy.shadow {
                continue;
            }
            let limiter = client.layer.clone().live().limiter().only([name]).expect("it has the policy");
            let (key, cost) = (policy.key(0), policy.limit.div_ceil(3));
            let ask = async || {
                // The clock of a cache does not move by itself.
                drop(self.lock());
                limiter.check_n(&key, cost).await.ok()
            };
            let mut first = None;
            for _ in 0..MOST {
                first = ask().await.filter(|decision| !decision.is_allowed());
                if first.is_some() {
                    break;
                }
            }
            // The next one may be refused from the cache.
            let (began, second) = (Instant::now(), ask().await);
            let waits = [&first, &second].map(|one| one.as_ref().and_then(Decision::retry_after));
            let [Some(first), Some(wait)] = waits else { continue };
            let again = began + wait;
            if first.abs_diff(wait) > CALL {
                self.lock().violate(format_args!("{name} has {first:?} to wait, and then {wait:?}"));
            }
            if refunds {
                let _ = limiter.refund(&key, 2 * cost).await;
                if self.left(place, 0).await.is_some_and(|left| left >= cost) {
                    self.expects(ask().await.as_ref(), true, "after a refund, is not admitted");
                }
                continue;
            }
            if wait > LONGEST {
                continue;
            }
            // Under a limit that replaced a faster one, a counter may expire when it was to be full by the old one.
            if wait > 4 * CALL && !self.lock().is_replaced {
                sleep_until(again - wait / 10 - CALL).await;
                self.expects(ask().await.as_ref(), false, "before its wait is over, is admitted");
            }
            sleep_until(again + CALL).await;
            self.expects(ask().await.as_ref(), true, "after its wait, is not admitted");
            self.lock().trace.meet("a wait that was true");
        }
    }

    fn expects(&self, decision: Option<&Decision>, is_allowed: bool, wrong: &str) {
        if decision.is_some_and(|decision| decision.is_allowed() != is_allowed) {
            self.lock().violate(format_args!("who was refused {wrong}: {decision:?}"));
        }
    }

    /// A request that is refused from the cache would be refused by the store: it is asked, where one process changes
    /// counters, and did not change them lately.
    pub(in super::super) async fn checks_cached(&self, place: usize) {
        let (record, setting, is_sure) = {
            let state = self.lock();
            let is_sure = !state.is_replaced && !state.may_be_reset;
            (state.records[place].clone(), state.plan.setting.clone(), is_sure)
        };
        if record.source() != Some(Source::DenyCache) || !is_sure || setting.processes.len() > 1 {
            return;
        }
        for (policy, name) in NAMES.iter().enumerate().take(setting.policies.len()) {
            let refused = record.outcome(policy).filter(|(outcome, _)| !outcome.is_allowed());
            let Some(wait) = refused.and_then(|(outcome, _)| outcome.retry_after()) else { continue };
            let Some(left) = self.left(policy, record.user).await else { continue };
            let (mut state, from, now) = (self.lock(), record.began, Instant::now());
            let is_quiet = !state.is_touched(&record, from, now)
                && state.is_calm_since(from)
                && !state.is_disturbed(from.checked_sub(2 * WAYS).unwrap_or(from), now);
            if is_quiet && left >= record.cost && wait > now - from + CALL {
                let who = record.name();
                state.violate(format_args!(
                    "{who} is refused from the cache for {wait:?}, and {name} has {left} units left"
                ));
            }
        }
    }
}
