//! The task that pays for a key.

use std::sync::Arc;

use tokio::time::sleep;

use super::shard::Shard;
use super::shared::Shared;
use crate::store::Counter;

/// A task that pays at each tick; one that ends with its runtime makes room for another.
pub(super) struct Ticking {
    shared: Arc<Shared>,
    hash: u64,
    counter: Counter,
    ended: bool,
}

impl Ticking {
    pub(super) fn new(shared: Arc<Shared>, hash: u64, counter: Counter) -> Self {
        Self { shared, hash, counter, ended: false }
    }

    /// Pays at each tick until nothing is owed, and looks each time.
    pub(super) async fn pay(mut self) {
        let all = Arc::clone(&self.shared);
        loop {
            sleep(all.tick).await;
            let charge = {
                let mut shard = all.shards.lock(self.hash);
                let Some(entry) = shard.find(self.hash, &self.counter).filter(|entry| entry.owes()) else {
                    return self.end(&mut shard);
                };
                all.charge(entry)
            };
            if let Some(charge) = charge
                && charge.send().await.is_ok()
            {
                all.look(self.hash, &self.counter).await;
            }
        }
    }

    /// Ends under the lock under which nothing was owed.
    fn end(&mut self, shard: &mut Shard) {
        self.ended = true;
        if let Some(entry) = shard.find(self.hash, &self.counter) {
            entry.ticks = false;
        }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        if !self.ended {
            let shared = Arc::clone(&self.shared);
            self.end(&mut shared.shards.lock(self.hash));
        }
    }
}
