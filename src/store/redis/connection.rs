//! One connection, shared by all callers and replaced when it fails.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};

use deadpool_redis::redis::RedisError;
use deadpool_redis::redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

use super::alarm::Alarms;
use super::connector::{Link, Source};
use super::patience::{Failure, Patience, is_of_the_connection};
use crate::Error;
use crate::error::Kind;

/// The multiplexed handle of a connection taken from the pool.
///
/// A pool's `get` asks the server whether the connection still lives: a second round trip. So one
/// connection is taken and kept until it fails.
#[derive(Clone)]
pub(in crate::store) struct Connections {
    shared: Arc<Shared>,
}

struct Shared {
    source: Source,
    current: SyncMutex<Option<Handle>>,
    /// Held by the one task that connects.
    connecting: Arc<Mutex<()>>,
    alarms: Alarms,
}

/// A connection, and which one in a row it is.
#[derive(Clone)]
pub(super) struct Handle {
    pub(super) connection: MultiplexedConnection,
    number: u64,
    /// How many questions were answered on it.
    answers: Arc<AtomicU64>,
    /// Ends with the last handle.
    _driver: Arc<Driving>,
}

/// The task that drives a connection.
struct Driving(AbortHandle);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Handle {
    fn new(link: Link) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (connection, number) = (link.connection, NEXT.fetch_add(1, Ordering::Relaxed));
        let driving = Driving(tokio::spawn(link.driver).abort_handle());
        Self { connection, number, answers: Arc::default(), _driver: Arc::new(driving) }
    }

    fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    fn count_answer(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }
}

impl Connections {
    pub(super) fn new(source: Source) -> Self {
        let shared =
            Shared { source, current: SyncMutex::new(None), connecting: Arc::default(), alarms: Alarms::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The current connection, or a new one.
    ///
    /// # Cancellation
    ///
    /// Connecting goes on without its caller, so that a connection that takes longer than one
    /// caller's patience still comes about.
    pub(super) async fn get(&self) -> Result<Handle, Error> {
        if let Some(handle) = self.shared.current() {
            return Ok(handle);
        }
        let turn = Arc::clone(&self.shared.connecting).lock_owned().await;
        if let Some(handle) = self.shared.current() {
            return Ok(handle);
        }
        let shared = Arc::clone(&self.shared);
        let connecting = tokio::spawn(async move {
            let _turn = turn;
            shared.connect().await
        });
        connecting
            .await
            .map_err(|error| Error::new(Kind::Connection, "connecting to Redis was stopped").with_source(error))?
    }

    /// Asks the server something within the budget. A connection that fails, or answers nobody
    /// meanwhile, is not used again; one whose caller went away is, and one that is merely slow.
    pub(in crate::store) async fn ask<T>(
        &self,
        patience: Patience,
        question: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Failure> {
        let mut handle = match self.shared.current() {
            Some(handle) => handle,
            // Boxed, as it is large and rare.
            None => match Box::pin(timeout_at(patience.until, self.get())).await {
                Ok(connected) => connected.map_err(Failure::NotConnected)?,
                Err(late) => return Err(Failure::Late(late)),
            },
        };
        let answers = handle.answers();
        let alarms = &self.shared.alarms;
        let answer = alarms.timeout_at(patience.until, pin!(question(&mut handle.connection))).await;
        match answer {
            Ok(Err(error)) => Err(self.failed(&handle, error)),
            Ok(Ok(answer)) => {
                handle.count_answer();
                Ok(answer)
            }
            Err(late) => {
                if handle.answers() == answers {
                    self.discard(&handle);
                }
                Err(Failure::Late(late))
            }
        }
    }

    #[cold]
    fn failed(&self, handle: &Handle, error: RedisError) -> Failure {
        if !is_of_the_connection(&error) {
            handle.count_answer();
        } else if !self.discard(handle) {
            return Failure::Lost(error);
        }
        Failure::Answered(error)
    }

    /// Stops using a connection that failed, and a newer one stays; whether it was still used.
    fn discard(&self, failed: &Handle) -> bool {
        self.shared.lock().take_if(|handle| handle.number == failed.number).is_some()
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Handle>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Handle> {
        self.lock().clone()
    }

    async fn connect(&self) -> Result<Handle, Error> {
        let handle = Handle::new(self.source.take().await?);
        *self.lock() = Some(handle.clone());
        Ok(handle)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}
