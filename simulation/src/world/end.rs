//! The end of a run: all is well again, and nothing is left.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};
use tollgate::{BreakerState, Key, Source};

use super::World;
use super::check::NOBODY;
use super::client::Client;
use super::plan::Plan;

/// Until all that was under way has ended.
const REST: Duration = Duration::from_secs(14);

impl World {
    /// Makes all well, and sees that it is.
    pub(super) async fn end(&self, plan: &Plan, clients: Vec<Client>) {
        self.lock().heal();
        sleep(REST).await;
        for (process, client) in clients.iter().enumerate() {
            self.recovers(process, client).await;
        }
        sleep(REST).await;
        let waiting: Vec<u64> =
            self.lock().records.iter().filter(|record| record.ended.is_none()).map(|record| record.cost).collect();
        if !waiting.is_empty() {
            self.lock().violate(format_args!("still waiting are those of cost {waiting:?}"));
        }
        self.lock().checks_at_the_end(&plan.setting);
        drop(clients);
        self.leaves_nothing().await;
    }

    /// Stores that answer again are asked, and close their breakers.
    async fn recovers(&self, process: usize, client: &Client) {
        let limiter = client.layer.limiter();
        for number in 0..40 {
            // On all nodes of a Cluster.
            let key = Key::new("header x-user", format!("{NOBODY}-{number}"));
            let decided = limiter.check(&key).await;
            let is_well = decided.is_ok_and(|decision| decision.source() == Source::Store);
            let is_closed = client.layer.breaker_state() == BreakerState::Closed
                && self.lock().asked(client.redis.breakers()).all(|state| state == BreakerState::Closed);
            if is_well && is_closed {
                return;
            }
            sleep(Duration::from_millis(250)).await;
        }
        let (layer, nodes) = (client.layer.breaker_state(), client.redis.breakers());
        self.lock().violate(format_args!("process {process} does not recover: {layer:?}, {nodes:?}"));
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
