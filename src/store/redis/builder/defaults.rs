//! Making stores with the default settings: a shorthand for the builder without any option.

use deadpool_redis::Pool;

use super::settings::RedisStoreBuilder;
use crate::core::Error;
use crate::store::redis::store::RedisStore;

impl RedisStore {
    /// Connects with the default settings. See [`RedisStoreBuilder::connect`].
    ///
    /// # Errors
    ///
    /// If the URL is wrong, or the server cannot be reached, refuses the connection, or is no
    /// Redis.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Makes a store with the default settings, which connects with its first decision. See
    /// [`RedisStoreBuilder::connect_lazy`].
    ///
    /// # Errors
    ///
    /// If the URL is wrong.
    pub fn connect_lazy(url: &str) -> Result<Self, Error> {
        Self::builder().connect_lazy(url)
    }

    /// Connects to a Cluster with the default settings. See [`RedisStoreBuilder::connect_cluster`].
    ///
    /// # Errors
    ///
    /// If a URL is wrong, or no node can be reached, is one of a Cluster, and accepts the scripts.
    #[cfg(feature = "cluster")]
    pub async fn connect_cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, Error> {
        Self::builder().connect_cluster(urls).await
    }

    /// Connects to the primary that sentinels know by a name, with the default settings. See
    /// [`RedisStoreBuilder::connect_sentinel`].
    ///
    /// # Errors
    ///
    /// If a URL is wrong, no sentinel replies or knows the name, or the primary cannot be reached, or
    /// refuses the connection.
    #[cfg(feature = "sentinel")]
    pub async fn connect_sentinel<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        master_name: &str,
    ) -> Result<Self, Error> {
        Self::builder().connect_sentinel(urls, master_name).await
    }

    /// Uses a pool that is there already, with the default settings.
    ///
    /// # Panics
    ///
    /// Never: the default settings are valid.
    pub fn from_pool(pool: Pool) -> Self {
        Self::builder().from_pool(pool).expect("the default settings are valid")
    }

    /// Settings to connect with.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }
}
