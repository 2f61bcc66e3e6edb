//! Making stores that connect with their first decision.
//!
//! They differ from connecting at once (`connect.rs`) only in when the server is called first:
//! settings and URLs are checked here too, before any store exists.

#[cfg(any(feature = "cluster", feature = "sentinel"))]
use super::connect::servers_at;
use super::settings::RedisStoreBuilder;
use crate::core::Error;
use crate::store::redis::store::RedisStore;

impl RedisStoreBuilder {
    /// Makes a store on the server at a URL, as [`connect`](Self::connect) does, but does not call
    /// the server before the first decision: so a service starts while Redis is unavailable, and
    /// its layer decides as it is set to until Redis is there ([`OnFailure`](crate::OnFailure)).
    /// May be called outside a runtime.
    ///
    /// The first decision connects. Passwords, permissions and servers
    /// that are no Redis are found then, as failures of decisions; [`connect`](Self::connect) finds
    /// them at once.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is wrong.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// assert!(RedisStore::builder().connect_lazy("redis://127.0.0.1:6379").is_ok());
    /// assert!(RedisStore::builder().connect_lazy("127.0.0.1:6379").is_err_and(|error| error.is_invalid()));
    /// ```
    pub fn connect_lazy(self, url: &str) -> Result<RedisStore, Error> {
        let (server, _) = self.server(url, Some(self.calls))?;
        self.build(server)
    }

    /// Makes a store on a Redis Cluster of which some nodes are known, as
    /// [`connect_cluster`](Self::connect_cluster) does, but does not call them before the first
    /// decision: see [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    ///
    /// If a setting or a URL is wrong, or there is no URL.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let nodes = ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"];
    /// assert!(RedisStore::builder().connect_cluster_lazy(nodes).is_ok());
    /// ```
    #[cfg(feature = "cluster")]
    pub fn connect_cluster_lazy<U: AsRef<str>>(self, urls: impl IntoIterator<Item = U>) -> Result<RedisStore, Error> {
        let servers = self.cluster(&servers_at(urls)?)?;
        self.build(servers)
    }

    /// Makes a store on the primary that sentinels know by a name, as
    /// [`connect_sentinel`](Self::connect_sentinel) does, but does not call them before the first
    /// decision: see [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    ///
    /// If a setting or a URL is wrong, or there is no URL.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RedisStore;
    ///
    /// let sentinels = ["redis://10.0.0.1:26379", "redis://10.0.0.2:26379"];
    /// assert!(RedisStore::builder().connect_sentinel_lazy(sentinels, "main").is_ok());
    /// ```
    #[cfg(feature = "sentinel")]
    pub fn connect_sentinel_lazy<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
        master_name: &str,
    ) -> Result<RedisStore, Error> {
        let servers = self.sentinels(&servers_at(urls)?, master_name)?;
        self.build(servers)
    }
}
