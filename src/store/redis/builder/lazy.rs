//! Stores that connect with their first decision.

#[cfg(any(feature = "cluster", feature = "sentinel"))]
use super::connect::servers_at;
use super::settings::RedisStoreBuilder;
use crate::core::Error;
use crate::store::redis::servers::Servers;
use crate::store::redis::store::RedisStore;

impl RedisStoreBuilder {
    /// Makes a store on the server at a URL, as [`connect`](Self::connect) does, but asks nothing of
    /// the server before the first decision: so a service starts while Redis is away, and limits as its
    /// layer is set to until Redis is there ([`OnFailure`](crate::OnFailure)). May be called
    /// outside a runtime.
    ///
    /// The first decision connects, and has the scripts loaded. Passwords, permissions and servers that are no
    /// Redis are found then, as failures of decisions; [`connect`](Self::connect) finds them at once.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is wrong.
    pub fn connect_lazy(self, url: &str) -> Result<RedisStore, Error> {
        let (server, _) = self.server(url, Some(self.calls))?;
        self.build(Servers::One(server))
    }

    /// Makes a store on a Redis Cluster of which some nodes are known, as
    /// [`connect_cluster`](Self::connect_cluster) does, but asks nothing of them before the first
    /// decision: see [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    ///
    /// If a setting or a URL is wrong.
    #[cfg(feature = "cluster")]
    pub fn connect_cluster_lazy<U: AsRef<str>>(self, urls: impl IntoIterator<Item = U>) -> Result<RedisStore, Error> {
        let servers = self.cluster(&servers_at(urls)?)?;
        self.build(servers)
    }

    /// Makes a store on the primary that sentinels know by a name, as
    /// [`connect_sentinel`](Self::connect_sentinel) does, but asks nothing of them before the first
    /// decision: see [`connect_lazy`](Self::connect_lazy).
    ///
    /// # Errors
    ///
    /// If a setting or a URL is wrong.
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
