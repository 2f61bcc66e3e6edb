//! The settings of a store on a database.

use std::fmt;
use std::time::Duration;

use super::store::BackendStore;
use super::traits::StateBackend;
use crate::core::Error;

/// How long a decision may take.
const BUDGET: Duration = Duration::from_millis(100);

/// The longest budget: points in time beyond it could not be represented.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// How many transactions there may be at once.
const ROUNDS: usize = 16;

/// Settings of a [`BackendStore`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tollgate::Error;
/// use tollgate::store::{BackendStore, StateBackend};
///
/// /// A store on a pool of 8 connections.
/// fn store<B: StateBackend>(database: B) -> Result<BackendStore<B>, Error> {
///     BackendStore::builder(database).budget(Duration::from_millis(50)).rounds(8).build()
/// }
/// ```
#[must_use]
pub struct BackendStoreBuilder<B> {
    backend: B,
    budget: Duration,
    rounds: usize,
}

impl<B: StateBackend> BackendStore<B> {
    /// A store on this database, with the default settings.
    pub fn new(backend: B) -> Self {
        Self::with(backend, BUDGET, ROUNDS)
    }

    /// Returns settings to build a store from.
    pub fn builder(backend: B) -> BackendStoreBuilder<B> {
        BackendStoreBuilder { backend, budget: BUDGET, rounds: ROUNDS }
    }
}

impl<B: StateBackend> BackendStoreBuilder<B> {
    /// Sets how long a decision may take, instead of 100 ms; 0 is refused by [`build`](Self::build).
    ///
    /// It covers loading, trying again after conflicts, and committing. Timers add up to 2 ms.
    pub fn budget(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// Sets how many transactions there may be at once, instead of 16; 0 is refused by [`build`](Self::build).
    ///
    /// Give as many as the database's pool has connections. A transaction that has not returned keeps its place for up to
    /// 10 s beyond the budget.
    pub fn rounds(self, rounds: usize) -> Self {
        Self { rounds, ..self }
    }

    /// Builds the store.
    ///
    /// # Errors
    ///
    /// If a setting is 0.
    pub fn build(self) -> Result<BackendStore<B>, Error> {
        if self.budget.is_zero() {
            return Err(Error::invalid("a budget of 0 decides nothing: give at least 1 ms"));
        }
        if self.rounds == 0 {
            return Err(Error::invalid("0 transactions at once decide nothing: give at least 1"));
        }
        Ok(BackendStore::with(self.backend, self.budget.min(LONGEST), self.rounds))
    }
}

impl<B> fmt::Debug for BackendStoreBuilder<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, rounds, .. } = self;
        f.debug_struct("BackendStoreBuilder").field("budget", budget).field("rounds", rounds).finish_non_exhaustive()
    }
}
