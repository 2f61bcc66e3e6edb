//! The lanes to a server: one for each runtime that asks.
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

/// The lanes to one server.
#[derive(Clone)]
pub(in crate::store::redis) struct Lanes {
    home: Arc<Home>,
}

/// How lanes are made.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Plan {
    pub(in crate::store::redis) settings: Arc<Settings>,
    /// Lanes to one server at most.
    pub(in crate::store::redis) most: usize,
    /// Where all lanes run, if not where the callers do.
    pub(in crate::store::redis) runtime: Option<Handle>,
}

impl Plan {
    /// Lanes to one server.
    pub(in crate::store::redis) fn to(&self, source: Source) -> Lanes {
        self.lanes(Arc::new(OneServer::new(source)))
    }

    /// Lanes to a server; they are made when they are used.
    pub(in crate::store::redis) fn lanes(&self, server: Arc<dyn Server>) -> Lanes {
        let Self { settings, most, runtime } = self.clone();
        let (lanes, making, orphans, settling) =
            (ArcSwap::default(), Mutex::default(), Mutex::default(), Settling::new());
        Lanes { home: Arc::new(Home { server, settings, lanes, making, most, runtime, orphans, settling }) }
    }
}

/// What the lanes to one server share.
struct Home {
    server: Arc<dyn Server>,
    settings: Arc<Settings>,
    lanes: ArcSwap<Vec<Arc<Lane>>>,
    /// Held by who makes a lane.
    making: Mutex<()>,
    most: usize,
    /// Where all lanes run, if not where the callers do.
    runtime: Option<Handle>,
    /// Settlements of lanes that ended, until there is another one.
    orphans: Mutex<Vec<Job>>,
    settling: Settling,
}

impl Lanes {
    /// Adds a job to the lane of the calling runtime, and returns its ID; or to the lane of another one,
    /// which may not be driven, and returns `None`.
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

    /// Adds a settlement to a lane, or keeps it until there is one.
    /// Fails it if too many are on their way.
    pub(in crate::store::redis) fn push_settlement(&self, mut job: Job) {
        match self.home.settling.place() {
            Ok(place) => job.keep(place),
            Err(error) => return job.answer(Err(error)),
        }
        if let Err(job) = self.push(job) {
            self.home.adopt(vec![job]);
        }
    }

    /// The error of who waited for the lane of another runtime, which was not there to look at the
    /// clock. Those who are late at once receive the same, as from the lane.
    pub(in crate::store::redis) fn late(&self, timeout: Timeout) -> Error {
        let Some(lane) = self.used() else { return timeout.error() };
        lock(&lane.stall).error(Instant::now(), timeout)
    }

    /// The runtime on which the answers to the calling one are received.
    pub(in crate::store::redis) fn runtime(&self) -> Option<Handle> {
        self.used().map(|lane| lane.runtime.clone())
    }

    /// The lane that is used in the calling runtime, if there is one already.
    fn used(&self) -> Option<Arc<Lane>> {
        let (here, lanes) = (Handle::try_current().ok(), self.home.lanes.load());
        find(&lanes, self.home.runtime.as_ref().or(here.as_ref())).or_else(|| lanes.first()).cloned()
    }

    /// The lane of the calling runtime, which may be made for it.
    pub(super) fn lane(&self) -> Option<Arc<Lane>> {
        self.home.lane(Handle::try_current().ok().as_ref())
    }
}

impl Home {
    /// The lane that is used in a runtime: its own, as long as there are not too many.
    fn lane(self: &Arc<Self>, here: Option<&Handle>) -> Option<Arc<Lane>> {
        let runtime = self.runtime.as_ref().or(here);
        let lane = find(&self.lanes.load(), runtime).filter(|lane| !lane.turns.is_over()).cloned();
        lane.or_else(|| self.make(runtime))
    }

    fn start(self: &Arc<Self>, runtime: &Handle) -> Arc<Lane> {
        let successor = Arc::downgrade(self);
        Lane::start(runtime.clone(), Arc::clone(&self.server), Arc::clone(&self.settings), successor)
    }

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
    /// Moves the settlements of a lane that ended to another one, or keeps them until there is one.
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

/// The lane of a runtime; any, if there is none.
fn find<'a>(lanes: &'a [Arc<Lane>], runtime: Option<&Handle>) -> Option<&'a Arc<Lane>> {
    lanes.iter().find(|lane| runtime.is_none_or(|runtime| runtime.id() == lane.runtime_id))
}

impl Drop for Home {
    fn drop(&mut self) {
        for lane in self.lanes.load().iter() {
            lane.finish();
        }
        let orphans = std::mem::take(&mut *lock(&self.orphans)).into_iter();
        call::fail(orphans.filter_map(|job| self.server.again(job)).collect(), &stopped());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cold]
pub(in crate::store::redis) fn no_runtime() -> Error {
    Error::new(Kind::Store, "Redis cannot be asked outside of a tokio runtime")
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes").field("server", &self.home.server).finish_non_exhaustive()
    }
}
