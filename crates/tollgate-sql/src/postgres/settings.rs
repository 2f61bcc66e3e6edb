use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, RecyclingMethod, Runtime};
use tokio_postgres::{Config, NoTls};
use tollgate::Error;

use super::backend::{Inner, Postgres};

const BUDGET: Duration = Duration::from_millis(100);
const POOL: usize = 16;

/// Connecting continues after the decision that began it has timed out.
const CONNECTING: Duration = Duration::from_secs(5);

/// Settings of a [`Postgres`].
#[must_use]
#[derive(Clone, Debug)]
pub struct PostgresBuilder {
    url: String,
    budget: Duration,
    pool_size: usize,
}

impl Postgres {
    /// Returns the database of this URL, with the default settings. It connects when it is used.
    ///
    /// # Errors
    ///
    /// If the URL is not valid.
    pub fn connect_lazy(url: &str) -> Result<Self, Error> {
        Self::builder(url).connect_lazy()
    }

    /// Returns settings for the database of this URL, without TLS: [`with_pool`](Self::with_pool) takes a pool with it.
    pub fn builder(url: &str) -> PostgresBuilder {
        PostgresBuilder { url: url.to_owned(), budget: BUDGET, pool_size: POOL }
    }

    /// Creates the database from a pool, which may have other uses as well. `budget` is the timeout of a decision, at
    /// least 1 ms.
    ///
    /// Set the pool's wait timeout to about the same time, and its connect timeout to some seconds.
    pub fn with_pool(pool: Pool, budget: Duration) -> Self {
        Self { inner: Arc::new(Inner::new(pool, budget.max(Duration::from_millis(1)))) }
    }
}

impl PostgresBuilder {
    /// Sets how long a decision may take, instead of 100 ms: at least 1 ms. This also bounds its locks on the server.
    pub fn timeout(self, budget: Duration) -> Self {
        Self { budget, ..self }
    }

    /// Sets how many connections there are at most, instead of 16.
    pub fn pool_size(self, connections: usize) -> Self {
        Self { pool_size: connections, ..self }
    }

    /// Returns the database, which connects when it is used.
    ///
    /// # Errors
    ///
    /// If the URL is not valid or a setting is 0.
    pub fn connect_lazy(self) -> Result<Postgres, Error> {
        let config: Config = self.url.parse().map_err(|error: tokio_postgres::Error| invalid("URL", &error))?;
        if self.budget.is_zero() || self.pool_size == 0 {
            return Err(Error::invalid(
                "a budget of 0 or a pool of 0 connections decides nothing: at least 1 is needed",
            ));
        }
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let pool = Pool::builder(Manager::from_config(config, NoTls, recycling))
            .max_size(self.pool_size)
            .wait_timeout(Some(self.budget))
            .create_timeout(Some(CONNECTING))
            .runtime(Runtime::Tokio1)
            .build();
        Ok(Postgres::with_pool(pool.map_err(|error| invalid("pool", &error))?, self.budget))
    }
}

/// The URL is not repeated, because it may have a password.
fn invalid(what: &str, error: &dyn std::error::Error) -> Error {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Error::invalid(format!("the {what} of postgres is not valid: {error}{cause}"))
}
