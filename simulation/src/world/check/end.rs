//! The end of a run: all is well again, what was taken is what was admitted, and nothing is left.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tollgate::policy::Algorithm;
use tollgate::store::BreakerState;
use tollgate::{Key, Source};

use super::super::caller::Record;
use super::super::client::{Client, NAMES, auditor};
use super::super::draw::LONG_MS;
use super::super::plan::{Around, PolicyPlan};
use super::super::{State, World};
use crate::server::slot_of;

/// Until a store that was not back is asked once more.
const PAUSE: Duration = Duration::from_millis(100);

/// How often it is asked: for as long as the next probe (500 ms), a connection that comes to nothing (200 ms, as the
/// stores are set), a reply on one that has gone silent (100 ms at most), and one more probe after one whose timeout is
/// shorter than connecting takes (500 ms). In a Cluster each primary has a breaker of its own, and the slots are looked
/// up again after 500 ms.
const TRIES: [u32; 2] = [15, 20];

/// Until all that was under way has ended, and slots have expired.
const REST: Duration = Duration::from_secs(14);

/// More units than any limit.
const TOO_MANY: u64 = 1_000_000;

impl World {
    /// Makes all well, and sees that it is.
    pub(in super::super) async fn end(&self, clients: Vec<Client>) {
        self.lock().heal();
        let seed = self.lock().plan.seed;
        if !seed.is_multiple_of(2) {
            sleep(REST).await;
        }
        if clients[0].ratios.is_some() {
            self.keeps_ratios(&clients).await;
        } else {
            for (process, client) in clients.iter().enumerate() {
                self.recovers(process, client, if seed % 4 < 2 { 1 } else { TOO_MANY }).await;
            }
        }
        let later = self.lock().stepped_back();
        sleep(REST + later).await;
        if clients[0].ratios.is_none() {
            for (process, client) in clients.iter().enumerate() {
                self.recovers(process, client, 1).await;
            }
            self.checks_what_is_taken().await;
            self.checks_waits(&clients[usize::try_from(seed / 2).unwrap_or(0) % clients.len()]).await;
        }
        let waiting = |record: &Record| record.ended.is_none().then(|| record.name());
        let waiting: Vec<String> = self.lock().records.iter().filter_map(waiting).collect();
        if !waiting.is_empty() {
            self.lock().violate(format_args!("still waiting are {waiting:?}"));
        }
        self.lock().checks_limits();
        drop(clients);
        self.leaves_nothing().await;
    }

    /// A store that is back decides, and breakers close: also if it refuses.
    pub(super) async fn recovers(&self, process: usize, client: &Client, units: u64) {
        let policies = self.lock().plan.setting.policies.len();
        let limiter =
            client.layer.clone().live().limiter().only(NAMES.iter().take(policies)).expect("these are its policies");
        let tries = TRIES[usize::from(self.lock().nodes.len() > 1)];
        for _ in 0..tries {
            let mut is_well = true;
            for key in self.keys_of_all() {
                let decided = limiter.check_n(&key, units).await;
                is_well &= decided.is_ok_and(|decision| matches!(decision.source(), Source::Store | Source::Lease));
            }
            if is_well && client.layer.clone().live().breaker_state() == BreakerState::Closed {
                return;
            }
            sleep(PAUSE).await;
        }
        let (layer, nodes) = (client.layer.clone().live().breaker_state(), client.redis.breakers());
        self.lock().violate(format_args!("process {process} does not recover: {layer:?}, {nodes:?}"));
    }

    /// Keys that nobody has asked for, one on each node of a Cluster.
    fn keys_of_all(&self) -> Vec<Key> {
        let state = self.lock();
        let now = state.trace.elapsed().as_millis();
        let mut keys: BTreeMap<Option<u16>, Key> = BTreeMap::new();
        for number in 0..64 {
            let key = Key::new("header x-user", format!("nobody-{now}-{number}"));
            let slot = slot_of(format!("{{{}}}", key.as_str()).as_bytes());
            keys.entry(state.slots().owner(slot)).or_insert(key);
        }
        keys.into_values().collect()
    }

    /// Asks the store, and no cache, how many units a policy has left for a user.
    pub(super) async fn left(&self, policy: usize, user: u8) -> Option<u64> {
        let setting = self.lock().plan.setting.clone();
        let known = self.lock().auditor.clone();
        let limiter = known.unwrap_or_else(|| auditor(self, &setting));
        self.lock().auditor = Some(limiter.clone());
        let key = setting.policies[policy].key(user);
        let told = limiter.only([NAMES[policy]]).ok()?.peek(&key).await.ok()?;
        (told.source() == Source::Store).then(|| told.outcomes()[0].remaining())
    }

    /// What is taken at the end is at least what was admitted and not refunded, and at most that and what may have
    /// been sent and lost; slots are free.
    async fn checks_what_is_taken(&self) {
        let setting = self.lock().plan.setting.clone();
        for (place, policy) in setting.policies.iter().enumerate() {
            let has_slots = policy.algorithm == Algorithm::Concurrency;
            if !(has_slots || policy.window_ms == LONG_MS && !policy.is_hourly) || policy.ban.is_some() {
                continue;
            }
            for user in 0..if policy.by_user { setting.users } else { 1 } {
                // Its connection may have gone silent.
                let mut left = None;
                for _ in 0..4 {
                    left = if left.is_none() { self.left(place, user).await } else { left };
                }
                let Some(left) = left else {
                    return self.lock().violate(format_args!("what is left of policy {place} cannot be asked"));
                };
                let mut state = self.lock();
                state.trace.say(format_args!("user {user} has {left} units left of policy {place}"));
                if has_slots && left < policy.limit && !state.is_replaced {
                    let held = policy.limit - left;
                    state.violate(format_args!("{held} slots of user {user} are still taken, which nobody holds"));
                } else if !has_slots {
                    state.checks_sum(place, policy, user, left);
                }
            }
        }
    }

    /// No task and no connection is left.
    async fn leaves_nothing(&self) {
        self.lock().auditor = None;
        let metrics = Handle::current().metrics();
        let gone = async {
            while metrics.num_alive_tasks() > 0 {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let is_late = timeout(REST, gone).await.is_err();
        let connections = self.lock().connections.len();
        if is_late || connections > 0 {
            let tasks = metrics.num_alive_tasks();
            self.lock().violate(format_args!("{tasks} tasks and {connections} connections are left"));
        }
    }
}

impl State {
    fn checks_sum(&mut self, place: usize, policy: &PolicyPlan, user: u8, left: u64) {
        let is_bucket = matches!(policy.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let capacity = if is_bucket { policy.burst } else { policy.limit };
        let (mut least, mut most, mut asked) = (0, 0, 0);
        for record in self.records.iter().filter(|record| !policy.by_user || record.user == user) {
            let owed = self.owed(record, place, policy);
            (least, most, asked) = (least + owed.0, most + owed.1, asked + record.cost + record.charged);
        }
        let taken = capacity.saturating_sub(left);
        let lasted = u64::try_from(self.trace.elapsed().as_millis()).unwrap_or(u64::MAX);
        let drained = if is_bucket { (policy.limit * lasted).div_ceil(policy.window_ms) } else { 0 };
        // Changed by others than requests, or by leases, it is known less well.
        let is_plain = self.plan.setting.processes.iter().all(|process| process.around == Around::Plain);
        let pays_later = self.plan.setting.processes.iter().any(|process| process.around == Around::Overdraft);
        // Of charges beyond twice the limit, nobody owes the rest.
        let is_whole = left > 0 && (!policy.metered || asked <= 2 * policy.limit);
        let is_kept = self.disturbed.is_empty() && is_whole && !pays_later;
        if self.is_replaced || taken <= most + u64::from(!is_plain) * capacity && (!is_kept || taken + drained >= least)
        {
            return;
        }
        let name = NAMES[place];
        self.violate(format_args!(
            "{name} has {taken} units taken for user {user}: owed are {least} to {most}, less {drained} that came back"
        ));
    }

    /// The least and the most that a request has taken of a policy in the end.
    fn owed(&self, record: &Record, place: usize, policy: &PolicyPlan) -> (u64, u64) {
        let Some((outcome, source)) = record.outcome(place) else { return (0, record.cost) };
        let is_of_store = matches!(source, Source::Store | Source::Lease);
        if !record.is_admitted || !is_of_store {
            // Where nobody waits for the reply, or it is lost, units may stay taken.
            let may_be_taken = record.has_left || self.is_lossy && source != Source::DenyCache;
            return (0, if may_be_taken { record.cost } else { 0 });
        }
        let cost = if outcome.is_allowed() { record.cost } else { 0 };
        let (charged, refunded) = if policy.metered { (record.charged, record.refunded) } else { (0, 0) };
        let whole = (cost + charged).saturating_sub(refunded);
        let returns = policy.successes && record.status != Some(200) || policy.refund_dropped && record.has_left;
        let is_sure = !self.is_lossy && !record.has_left;
        match (returns, is_sure) {
            (true, true) => (0, charged),
            (true, false) => (0, cost + charged),
            (false, true) => (whole, whole),
            (false, false) => (cost.saturating_sub(refunded), cost + charged),
        }
    }
}
