//! The lanes to one server: one for each runtime that calls it.
//!
//! A job comes in, from any thread; it is added to the lane of the calling runtime,
//! which is made if there is none. So the tasks that send and receive run where their callers do,
//! and a runtime that is blocked or shut down harms only its own callers. There are at most
//! `Plan::most` lanes, as each has a connection; further runtimes use the first one.
//!
//! Lanes end with their runtimes. What they have not sent of settlements moves to another lane, or
//! waits here as *orphans* until a lane is made. Dropping the last `Lanes` lets every lane send
//! what it has and end.
//!
//! Locking: the list of lanes is read without a lock (`arc-swap`). A lane is made under `making`,
//! so that two threads do not make two for one runtime. `orphans` is a mutex of its own, which is
//! held for a move only; `adopt` looks at the list again after it has added to it, as a lane made
//! meanwhile may have looked for orphans before.
#![allow(clippy::result_large_err, reason = "the error is the job, which is moved either way")]

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::call;
use super::job::Job;
use super::lane::{Lane, Settings, Successor, stopped};
use super::server::{OneServer, Server};
use super::settling::Settling;
use super::timeout::Timeout;
use crate::core::Error;
use crate::core::error::Kind;
use crate::store::redis::connections::Source;
use crate::store::redis::wire::Calls;

/// The lanes to one server. Clones share them.
#[derive(Clone)]
pub(in crate::store::redis) struct Lanes {
    home: Arc<Home>,
}

/// How lanes are made, whatever server they lead to.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Plan {
    /// How calls are made of jobs.
    pub(in crate::store::redis) settings: Arc<Settings>,
    /// The limit of lanes to one server, each of which has a connection of its own.
    pub(in crate::store::redis) most: usize,
    /// The runtime of all lanes, if it is not that of the callers.
    pub(in crate::store::redis) runtime: Option<Handle>,
}

impl Plan {
    /// Lanes to one server that has every key, from where `source` connects to.
    pub(in crate::store::redis) fn to(&self, source: Source) -> Lanes {
        self.lanes(Arc::new(OneServer::new(source)))
    }

    /// Lanes to a server. None is made, and nothing is connected, before the first job.
    pub(in crate::store::redis) fn lanes(&self, server: Arc<dyn Server>) -> Lanes {
        let Self { settings, most, runtime } = self.clone();
        let (lanes, making, orphans, settling) =
            (ArcSwap::default(), Mutex::default(), Mutex::default(), Settling::new());
        Lanes { home: Arc::new(Home { server, settings, lanes, making, most, runtime, orphans, settling }) }
    }
}

/// What all clones of the lanes to one server share.
struct Home {
    /// The server that all lanes lead to.
    server: Arc<dyn Server>,
    /// How calls are made of jobs.
    settings: Arc<Settings>,
    /// The lanes; some may have ended, which are removed when the next one is made.
    lanes: ArcSwap<Vec<Arc<Lane>>>,
    /// Held while a lane is made.
    making: Mutex<()>,
    /// The limit of `lanes`.
    most: usize,
    /// The runtime of all lanes, if it is not that of the callers.
    runtime: Option<Handle>,
    /// Settlements of lanes that ended, until there is another lane. Their timeouts still hold, but
    /// are looked at only once a lane has them.
    orphans: Mutex<Vec<Job>>,
    /// The limit of settlements in flight to the server.
    settling: Settling,
}

impl Lanes {
    /// Adds a job to the lane of the calling runtime and returns that runtime's ID; or to the lane
    /// of another one, and returns `None`: that one may not run, so the caller has to set a timer
    /// itself.
    ///
    /// Neither blocks nor waits. A decision that finds the queue full is completed with an error at
    /// once, which is no error here.
    ///
    /// # Errors
    ///
    /// The job, if there is neither a lane nor a runtime for one.
    pub(in crate::store::redis) fn push(&self, job: Job) -> Result<Option<Id>, Job> {
        let here = Handle::try_current().ok();
        let push = |lane: &Arc<Lane>, job| {
            lane.push(job).map(|()| here.as_ref().map(Handle::id).filter(|here| *here == lane.runtime_id))
        };
        let runtime = self.home.runtime.as_ref().or(here.as_ref());
        let job = match find(&self.home.lanes.load(), runtime) {
            Some(lane) => match push(lane, job) {
                Ok(here) => return Ok(here),
                Err(job) => job,
            },
            None => job,
        };
        match self.home.make(runtime) {
            Some(lane) => push(&lane, job),
            None => Err(job),
        }
    }

    /// Returns how the Lua files are called.
    pub(in crate::store::redis) fn calls(&self) -> Calls {
        self.home.settings.calls
    }

    /// Adds a settlement to a lane, or keeps it until there is one. It may be called from `Drop`,
    /// and outside of a runtime. The settlement is completed with an error if too many are in
    /// flight.
    pub(in crate::store::redis) fn push_settlement(&self, mut job: Job) {
        match self.home.settling.place() {
            Ok(place) => job.keep(place),
            Err(error) => return job.complete(Err(error)),
        }
        if let Err(job) = self.push(job) {
            self.home.adopt(vec![job]);
        }
    }

    /// Returns the error for a caller that timed out by its own clock, as the runtime of its lane
    /// did not end its wait. Callers that are late at the same time receive one that counts as one
    /// failure, as if from the lane.
    pub(in crate::store::redis) fn late(&self, timeout: Timeout) -> Error {
        let Some(lane) = self.used() else { return timeout.error() };
        lock(&lane.stall).error(Instant::now(), timeout)
    }

    /// Returns the runtime on which replies for the calling one are received: late refunds run
    /// there.
    pub(in crate::store::redis) fn runtime(&self) -> Option<Handle> {
        self.used().map(|lane| lane.runtime.clone())
    }

    /// Returns the lane that the calling runtime uses, without making one: its own, or the first.
    fn used(&self) -> Option<Arc<Lane>> {
        let (here, lanes) = (Handle::try_current().ok(), self.home.lanes.load());
        find(&lanes, self.home.runtime.as_ref().or(here.as_ref())).or_else(|| lanes.first()).cloned()
    }

    /// Returns the lane for the calling runtime, made if need be; `None` outside of a runtime, if
    /// there is no lane at all.
    pub(super) fn lane(&self) -> Option<Arc<Lane>> {
        self.home.lane(Handle::try_current().ok().as_ref())
    }
}

impl Home {
    /// Returns the lane for a runtime: its own if that has not ended, else one that is made, or the
    /// first if there are too many.
    fn lane(self: &Arc<Self>, here: Option<&Handle>) -> Option<Arc<Lane>> {
        let runtime = self.runtime.as_ref().or(here);
        let lane = find(&self.lanes.load(), runtime).filter(|lane| !lane.turns.is_over()).cloned();
        lane.or_else(|| self.make(runtime))
    }

    /// Starts a lane on `runtime`, which takes this home as its successor. The weak reference lets
    /// the home be dropped while lanes run.
    fn start(self: &Arc<Self>, runtime: &Handle) -> Arc<Lane> {
        let successor = Arc::downgrade(self);
        Lane::start(runtime.clone(), Arc::clone(&self.server), Arc::clone(&self.settings), successor)
    }

    /// Returns the lane of a runtime, under the lock that keeps others from making the same one. It
    /// looks once more for a lane, removes those that have ended, and hands orphans to the new one
    /// after the lock is released.
    ///
    /// Returns `None` if a lane would have to be made and there is no runtime.
    #[cold]
    fn make(self: &Arc<Self>, runtime: Option<&Handle>) -> Option<Arc<Lane>> {
        let making = lock(&self.making);
        let mut lanes = Vec::clone(&self.lanes.load());
        lanes.retain(|lane| !lane.turns.is_over());
        let other = || lanes.first().filter(|_| lanes.len() >= self.most);
        if let Some(lane) = find(&lanes, runtime).or_else(other) {
            return Some(Arc::clone(lane));
        }
        let lane = self.start(runtime?);
        lanes.push(Arc::clone(&lane));
        self.lanes.store(Arc::new(lanes));
        let orphans = std::mem::take(&mut *lock(&self.orphans));
        drop(making);
        self.adopt(orphans);
        Some(lane)
    }
}

impl Successor for Home {
    /// Adds the settlements of a lane that ended to another lane, or keeps them until there is one.
    /// Ends after one turn unless lanes are made meanwhile.
    fn adopt(&self, settlements: Vec<Job>) {
        let mut orphans = settlements;
        while !orphans.is_empty() {
            let lanes = self.lanes.load_full();
            for lane in lanes.iter() {
                orphans = orphans.into_iter().filter_map(|job| lane.push(job).err()).collect();
            }
            lock(&self.orphans).append(&mut orphans);
            // Who made a lane meanwhile may have looked for them before they were there.
            if !Arc::ptr_eq(&lanes, &self.lanes.load_full()) {
                orphans = std::mem::take(&mut *lock(&self.orphans));
            }
        }
    }
}

/// Returns the lane of a runtime, or any if no runtime is given. It may have ended.
fn find<'a>(lanes: &'a [Arc<Lane>], runtime: Option<&Handle>) -> Option<&'a Arc<Lane>> {
    lanes.iter().find(|lane| runtime.is_none_or(|runtime| runtime.id() == lane.runtime_id))
}

impl Drop for Home {
    /// Lets the lanes end once all is sent and has its replies. Orphans have no lane any more: another
    /// server takes them, if it has their slots, or they fail.
    fn drop(&mut self) {
        for lane in self.lanes.load().iter() {
            lane.finish();
        }
        let orphans = std::mem::take(&mut *lock(&self.orphans)).into_iter();
        call::fail(orphans.filter_map(|job| self.server.again(job)).collect(), &stopped().unsent());
    }
}

/// Locks a mutex. Nothing panics while one is held, so a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The error of a call outside of a tokio runtime, where no lane can be made.
#[cold]
pub(in crate::store::redis) fn no_runtime() -> Error {
    Error::new(Kind::Store, "Redis cannot be called outside of a tokio runtime")
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("server", &self.home.server).finish_non_exhaustive()
    }
}
