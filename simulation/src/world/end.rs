//! The end of a run: all is well again, and nothing is left.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tollgate::store::BreakerState;
use tollgate::{Key, Source};

use super::World;
use super::check::NOBODY;
use super::client::{Client, key_of_user};
use super::plan::{FIRST_COST, Plan};
use super::record::Record;
use crate::server::slot_of;

/// How often a store is asked until it decides again, and its breakers are closed: for 2 s.
///
/// What the client may wait for, one after the other: the next probe of the layer's breaker (500 ms), that of a
/// primary's (500 ms), the next look for the slots (500 ms), a connection that comes to nothing (200 ms, as the
/// stores are set) and an answer on one that has gone silent (the budget, 100 ms at most).
const TRIES: u32 = 8;

/// More units than any limit, which are refused.
const TOO_MANY: u64 = 1_000_000;

/// Until it is asked once more.
const PAUSE: Duration = Duration::from_millis(250);

/// Until all that was under way has ended.
const REST: Duration = Duration::from_secs(14);

/// The same where nobody waits for anything, and all goes on in each tick.
const SHORT_REST: Duration = Duration::from_secs(3);

impl World {
    /// Makes all well, and sees that it is.
    pub(super) async fn end(&self, plan: &Plan, clients: Vec<Client>) {
        self.lock().heal();
        // At once in every other run: who asks may find what would else lie hidden. And when stores that lease have
        // something to give back.
        let at_once = plan.seed.is_multiple_of(2);
        let rest = if clients.iter().any(|client| client.ratios.is_some()) { SHORT_REST } else { REST };
        for is_early in [true, false] {
            if is_early && !at_once {
                sleep(rest).await;
                continue;
            }
            if clients.iter().any(|client| client.ratios.is_some()) {
                self.knows_ratios(&clients).await;
            } else {
                for (process, client) in clients.iter().enumerate() {
                    self.recovers(process, client, plan.seed).await;
                }
            }
            sleep(rest).await;
        }
        for client in clients.iter().filter(|client| client.ratios.is_none()) {
            self.has_learned(client).await;
        }
        if let ([client], true) = (&clients[..], plan.seed.is_multiple_of(8)) {
            self.recovers_for_a_hot_key(plan, client).await;
        }
        let waiting = |record: &Record| record.ended.is_none().then(|| record.name().to_string());
        let waiting: Vec<String> = self.lock().records.iter().filter_map(waiting).collect();
        if !waiting.is_empty() {
            self.lock().violate(format_args!("still waiting are {waiting:?}"));
        }
        self.closes_ratios(plan, &clients).await;
        self.lock().checks_at_the_end(&plan.setting);
        drop(clients);
        self.leaves_nothing().await;
    }

    /// Stores that answer again are asked, and close their breakers: also those that refuse.
    async fn recovers(&self, process: usize, client: &Client, seed: u64) {
        let (limiter, units) = (client.layer_limiter(), if seed % 4 < 2 { 1 } else { TOO_MANY });
        for _ in 0..TRIES {
            let mut is_well = true;
            for key in self.keys_of_all() {
                let decided = limiter.check_n(&key, units).await;
                is_well &= decided.is_ok_and(|decision| decision.source() == Source::Store);
            }
            let is_closed = client.layer.clone().live().breaker_state() == BreakerState::Closed
                && self.lock().asked(client.redis.breakers()).all(|state| state == BreakerState::Closed);
            if is_well && is_closed {
                return;
            }
            sleep(PAUSE).await;
        }
        let (layer, nodes) = (client.layer.clone().live().breaker_state(), client.redis.breakers());
        self.lock().violate(format_args!("process {process} does not recover: {layer:?}, {nodes:?}"));
    }

    /// Who was told where a slot is asks there.
    async fn has_learned(&self, client: &Client) {
        let (limiter, mut told) = (client.layer_limiter(), Vec::new());
        for _ in 0..2 {
            for key in (0..3).filter_map(key_of_user) {
                // It takes nothing, and what it says is checked elsewhere.
                let _ = limiter.peek(&key).await;
            }
            told.push(self.lock().trace.met().get("MOVED").copied());
        }
        if told[0] != told[1] {
            self.lock().violate(format_args!("a slot is asked for where it was told not to be"));
        }
    }

    /// A client whose refusals are remembered finds out as well that its store is back.
    async fn recovers_for_a_hot_key(&self, plan: &Plan, client: &Client) {
        if plan.setting.nodes > 1 || plan.setting.is_crowd || !plan.setting.processes[0].deny_cache {
            return;
        }
        let (limiter, key) = (client.layer_limiter(), Key::new("header x-user", format!("{NOBODY}-hot")));
        for _ in 0..40 {
            let _ = limiter.check_n(&key, FIRST_COST).await;
        }
        self.lock().nodes[0].is_up = false;
        self.cut(0);
        for number in 0..20 {
            let _ = limiter.check(&Key::new("header x-user", format!("{NOBODY}-{number}"))).await;
        }
        if client.layer.clone().live().breaker_state() == BreakerState::Open {
            self.lock().trace.meet("a client who is refused while the store is away");
        }
        self.lock().heal();
        for _ in 0..TRIES {
            let _ = limiter.check_n(&key, FIRST_COST).await;
            if client.layer.clone().live().breaker_state() == BreakerState::Closed {
                return;
            }
            sleep(PAUSE).await;
        }
        self.lock().violate(format_args!("the breaker stays open for a client that is refused"));
    }

    /// Keys that nobody has asked for, one on each node of a Cluster.
    fn keys_of_all(&self) -> Vec<Key> {
        let state = self.lock();
        let now = state.trace.elapsed().as_millis();
        let mut keys: BTreeMap<Option<u16>, Key> = BTreeMap::new();
        for number in 0..64 {
            let key = Key::new("header x-user", format!("{NOBODY}-{now}-{number}"));
            let slot = slot_of(format!("{{{}}}", key.as_str()).as_bytes());
            keys.entry(state.slots().owner(slot)).or_insert(key);
        }
        keys.into_values().collect()
    }

    /// No task and no connection is left.
    async fn leaves_nothing(&self) {
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
