//! Connections to one server, one for each runtime, and settlements in progress.
//!
//! A connection ends with its runtime. Its unsent settlements move to another connection, or wait here for one. When
//! the server is dropped, each connection sends what is queued, then ends.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Context;

use arc_swap::ArcSwap;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Semaphore, oneshot};

use super::calls::Settings;
use super::job::{Job, SettledReply, Settler, Unsettled, Watch, settle_again, stopped};
use super::pipe::{Asking, Pipe};
use super::task::Task;
use crate::core::error::Kind;
use crate::core::{Error, Lines};
use crate::store::redis::connections::{ConnSource, Link};

/// Bounded because settlements wait through outages and would fill the memory.
const MAX_SETTLEMENTS: usize = 4_096;

pub(in crate::store::redis) struct Server {
    source: Arc<ConnSource>,
    settings: Arc<Settings>,
    watch: Arc<dyn Watch>,
    /// The connection of each runtime. Ended ones are removed when the next is made.
    lines: ArcSwap<Vec<(Id, Arc<Pipe>)>>,
    /// Settlements that wait for a connection of any runtime. The lock is held while a connection is made.
    orphans: Mutex<Vec<Unsettled>>,
    places: Arc<Semaphore>,
}

/// The watch of a server without a Cluster, whose outcomes the layer's circuit breaker counts.
struct Alone(Weak<Server>);

impl Watch for Alone {
    fn settle_again(&self, settlement: Unsettled) -> Option<Unsettled> {
        let Some(server) = self.0.upgrade() else { return Some(settlement) };
        server.settle_by(settlement.job, settlement.settler);
        None
    }
}

impl Server {
    pub(in crate::store::redis) fn new(
        source: Arc<ConnSource>,
        settings: Arc<Settings>,
        watch: Option<Arc<dyn Watch>>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| {
            let (lines, orphans) = (ArcSwap::default(), Mutex::default());
            let watch = watch.unwrap_or_else(|| Arc::new(Alone(Weak::clone(this))));
            let places = Arc::new(Semaphore::new(MAX_SETTLEMENTS));
            Self { source, settings, watch, lines, orphans, places }
        })
    }

    pub(in crate::store::redis) fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// Uses the connection of the calling runtime. Nothing is sent before the first poll.
    pub(in crate::store::redis) fn ask(&self, job: Box<Job>) -> Result<Asking, Error> {
        let here = Handle::try_current().ok();
        let runtime = self.settings.runtime.as_ref().or(here.as_ref()).ok_or_else(no_runtime)?;
        Ok(self.ask_by(runtime, job))
    }

    pub(in crate::store::redis) fn ask_by(&self, runtime: &Handle, job: Box<Job>) -> Asking {
        Asking::new(self.line(runtime), job)
    }

    /// Asks at once.
    pub(in crate::store::redis) fn begin(&self, runtime: &Handle, job: Job, cx: &Context<'_>) -> Result<Asking, Error> {
        Asking::begin(self.line(runtime), job, cx)
    }

    pub(in crate::store::redis) async fn prepare(&self) -> Result<(), Error> {
        let here = Handle::try_current().map_err(|_| no_runtime())?;
        let runtime = self.settings.runtime.as_ref().unwrap_or(&here);
        if self.lines.load().iter().all(|(id, _)| *id != runtime.id()) {
            let source = Arc::clone(&self.source);
            // Streams belong to the runtime that opens them.
            let link = runtime.spawn(async move { source.take().await }).await.map_err(|_| stopped())??;
            self.make(runtime, Some(link));
        }
        Ok(())
    }

    /// Sends a settlement after earlier ones of the same runtime. If too many are in progress, it is logged, not sent.
    pub(in crate::store::redis) fn settle(&self, job: Box<Job>) -> Result<oneshot::Receiver<SettledReply>, Error> {
        static UNSENT: Lines = Lines::new();
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            UNSENT.log("", |more| {
                tracing::warn!(code = "settlement_unsent", more, "settlement not sent, too many in flight");
            });
            return Err(Error::new(Kind::Crowd, "too many settlements are on their way"));
        };
        let (settler, receiver) = Settler::new(place);
        self.settle_by(job, settler);
        Ok(receiver)
    }

    /// Sends a settlement that has a permit. Outside of a runtime, any connection sends it.
    pub(in crate::store::redis) fn settle_by(&self, job: Box<Job>, settler: Settler) {
        let here = Handle::try_current().ok();
        let runtime = self.settings.runtime.as_ref().or(here.as_ref());
        let line = runtime.map(|runtime| self.line(runtime));
        self.give(line.as_ref(), job, settler);
    }

    fn give(&self, line: Option<&Arc<Pipe>>, mut job: Box<Job>, mut settler: Settler) {
        loop {
            for line in line.into_iter().chain(self.lines.load().iter().map(|(_, line)| line)) {
                match line.settle(job, settler) {
                    Ok(()) => return,
                    Err(back) => (job, settler) = back,
                }
            }
            // The lock makes the next new connection take this settlement.
            let mut orphans = lock(&self.orphans);
            if self.lines.load().iter().all(|(_, line)| line.has_ended()) {
                return orphans.push(Unsettled { job, settler, error: stopped(), cause: None });
            }
        }
    }

    fn line(&self, runtime: &Handle) -> Arc<Pipe> {
        let id = runtime.id();
        // A connection ends if its task panics.
        let lines = self.lines.load();
        let known = lines.iter().find(|(of, line)| *of == id && !line.has_ended());
        known.map_or_else(|| self.make(runtime, None), |(_, line)| Arc::clone(line))
    }

    /// Returns the first connection if there are too many.
    #[cold]
    fn make(&self, runtime: &Handle, connection: Option<Link>) -> Arc<Pipe> {
        let (orphans, id) = (lock(&self.orphans), runtime.id());
        let mut lines = Vec::clone(&self.lines.load());
        lines.retain(|(_, line)| !line.has_ended());
        let full = lines.first().filter(|_| lines.len() >= self.settings.most);
        if let Some((_, line)) = lines.iter().find(|(of, _)| *of == id).or(full) {
            return Arc::clone(line);
        }
        let line = Arc::new(Pipe::new(Arc::clone(&self.settings), Arc::clone(&self.watch)));
        lines.push((id, Arc::clone(&line)));
        self.lines.store(Arc::new(lines));
        drop(orphans);
        runtime.spawn(Task::new(Arc::clone(&line), Arc::clone(&self.source), runtime.clone(), connection));
        // It has already ended if its runtime is shutting down.
        let orphans = if line.has_ended() { Vec::new() } else { std::mem::take(&mut *lock(&self.orphans)) };
        for Unsettled { job, settler, .. } in orphans {
            self.give(Some(&line), job, settler);
        }
        line
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for (_, line) in self.lines.load().iter() {
            line.lock().is_last = true;
            line.wake();
        }
        let orphans = std::mem::take(&mut *lock(&self.orphans));
        settle_again(&*self.watch, orphans);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
fn no_runtime() -> Error {
    // No failure of the server, which must not open a circuit breaker for others.
    Error::invalid("Redis cannot be called outside of a tokio runtime")
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
