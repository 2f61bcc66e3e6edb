//! The lanes to a server: one for each runtime that asks.
#![allow(clippy::result_large_err, reason = "the error is the job, which is moved either way")]

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use deadpool_redis::redis::RedisError;
use deadpool_redis::redis::aio::MultiplexedConnection;
use tokio::runtime::{Handle, Id};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::call;
use super::connection::Shared;
use super::end::stopped;
use super::job::Job;
use super::lane::Lane;
use super::one::OneServer;
use super::queue::Borrower;
use super::server::Server;
use super::settings::Settings;
use super::settling::Settling;
use crate::Error;
use crate::core::error::Kind;
use crate::store::redis::connections::{Failure, Patience, Source, is_of_the_connection};

/// Who waits for a lane of another runtime looks at the clock by itself, this much later.
pub(in crate::store::redis) const GRACE: Duration = Duration::from_millis(5);

/// The lanes to one server.
#[derive(Clone)]
pub(in crate::store) struct Lanes {
    pub(super) home: Arc<Home>,
}

/// How lanes are made.
#[derive(Clone, Debug)]
pub(in crate::store) struct Plan {
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
pub(super) struct Home {
    pub(super) server: Arc<dyn Server>,
    pub(super) settings: Arc<Settings>,
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

    /// A handle of the connection; its answers are nobody's but the caller's to bound.
    pub(in crate::store::redis) async fn connected(&self, patience: Patience) -> Result<MultiplexedConnection, Error> {
        let lane = self.home.lane(Handle::try_current().ok().as_ref()).ok_or_else(no_runtime)?;
        connection(&lane, patience).await.map(|shared| shared.handle).map_err(|failure| patience.told(failure))
    }

    /// Asks the server something by itself, within the budget. A connection that fails, or answers nobody
    /// meanwhile, is not used again; one whose caller went away is, and one that is merely slow.
    #[cfg_attr(not(any(feature = "cluster", feature = "redis-cell")), allow(dead_code, reason = "scripts need none"))]
    pub(in crate::store) async fn ask<T>(
        &self,
        patience: Patience,
        question: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Failure> {
        let lane = self.home.lane(Handle::try_current().ok().as_ref()).ok_or(Failure::NotConnected(no_runtime()))?;
        let mut shared = connection(&lane, patience).await?;
        let answers = shared.answers();
        match timeout_at(patience.until, question(&mut shared.handle)).await {
            Ok(Ok(answer)) => {
                shared.count_answer();
                Ok(answer)
            }
            Ok(Err(error)) => {
                if is_of_the_connection(&error) || self.home.server.is_lost(&error) {
                    lane.discard(shared.number);
                } else {
                    shared.count_answer();
                }
                Err(Failure::Answered(error))
            }
            Err(_) => {
                if shared.answers() == answers {
                    lane.discard(shared.number);
                }
                Err(Failure::Late)
            }
        }
    }
}

/// The connection of a lane, once there is one.
async fn connection(lane: &Arc<Lane>, patience: Patience) -> Result<Shared, Failure> {
    if let Some(shared) = lane.current() {
        return Ok(shared);
    }
    let (answer, answered) = oneshot::channel();
    if lane.borrow(Borrower { answer, patience }).is_err() {
        return Err(Failure::NotConnected(stopped()));
    }
    match timeout_at(patience.until + GRACE, answered).await {
        Ok(Ok(connected)) => connected.map_err(Failure::NotConnected),
        Ok(Err(_)) => Err(Failure::NotConnected(stopped())),
        Err(_) => Err(Failure::Late),
    }
}

impl Home {
    /// The lane that is used in a runtime: its own, as long as there are not too many.
    fn lane(self: &Arc<Self>, here: Option<&Handle>) -> Option<Arc<Lane>> {
        let runtime = self.runtime.as_ref().or(here);
        let lane = find(&self.lanes.load(), runtime).filter(|lane| !lane.turns.is_over()).cloned();
        lane.or_else(|| self.make(runtime))
    }

    /// The lane that is used in a runtime, if there is one already.
    pub(super) fn known(&self, here: Option<&Handle>) -> Option<Arc<Lane>> {
        let lanes = self.lanes.load();
        find(&lanes, self.runtime.as_ref().or(here)).or_else(|| lanes.first()).cloned()
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
        let lane = Lane::start(runtime?.clone(), self);
        lanes.push(Arc::clone(&lane));
        self.lanes.store(Arc::new(lanes));
        let orphans = std::mem::take(&mut *lock(&self.orphans));
        drop(making);
        self.adopt(orphans);
        Some(lane)
    }

    /// Moves the settlements of a lane that ended to another one, or keeps them until there is one.
    pub(super) fn adopt(&self, settlements: Vec<Job>) {
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
