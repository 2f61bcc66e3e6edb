//! What is told of the calls to a server, and where settlements go that it surely has not done.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::job::{Unsettled, fail_all};
use crate::store::breaker::Permit;
use crate::store::redis::connections::Failure;

/// The pause before a settlement that was not done is sent again, which doubles up to the longest.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Who is told of calls. Nothing here may block.
pub(in crate::store::redis) trait Watch: Send + Sync {
    /// Reports the outcome of what a permit was acquired for: `failure` is `None` if the server replied.
    fn report(&self, permit: Permit, failure: Option<&Failure>) {
        let _ = (permit, failure);
    }

    /// Counts a failure of requests that waited for a whole budget and were never sent.
    fn waited(&self) {}

    /// Returns whether the server is one of a Cluster, and may redirect calls.
    fn may_redirect(&self) -> bool {
        false
    }

    /// Sends a settlement again, to whichever server has its slot by now. Returns it if there is none.
    fn settle_again(&self, settlement: Unsettled) -> Option<Unsettled>;
}

pub(super) type SharedWatch = Arc<dyn Watch>;

/// Sends settlements again after a pause, or at once if the runtime ends before.
pub(super) fn settle_later(watch: &Arc<dyn Watch>, runtime: &Handle, unsettled: Vec<Unsettled>) {
    let hops = unsettled.iter().map(|unsettled| unsettled.job.hops).min().unwrap_or_default();
    let pause = PAUSE.saturating_mul(1 << hops.min(10)).min(LONGEST_PAUSE);
    let later = Later { unsettled, watch: Arc::clone(watch) };
    runtime.spawn(async move {
        sleep(pause).await;
        drop(later);
    });
}

/// Sends settlements again, but for those whose time is over.
pub(super) fn settle_again(watch: &dyn Watch, unsettled: Vec<Unsettled>) {
    let (now, mut late) = (Instant::now(), None);
    for mut unsettled in unsettled {
        unsettled.job.hops = unsettled.job.hops.saturating_add(1);
        let is_late = unsettled.job.timeout.until <= now;
        let failed = if is_late { Some(unsettled) } else { watch.settle_again(unsettled) };
        if let Some(Unsettled { settler, error, .. }) = failed {
            late.get_or_insert_with(|| (error, Vec::new())).1.push(settler);
        }
    }
    if let Some((error, settlers)) = late {
        fail_all(settlers, &error.unsent());
    }
}

/// Settlements that are sent again when this is dropped.
struct Later {
    unsettled: Vec<Unsettled>,
    watch: Arc<dyn Watch>,
}

impl Drop for Later {
    fn drop(&mut self) {
        settle_again(&*self.watch, std::mem::take(&mut self.unsettled));
    }
}
