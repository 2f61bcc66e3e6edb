//! Connecting, at once or with the first decision.
//!
//! Settings and URLs are checked before a store exists. Connecting at once includes the check of the servers' Lua.
//! Connecting at once takes at most four connect timeouts. After that it returns an error with the address.

use std::sync::Arc;
#[cfg(feature = "sentinel")]
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use deadpool_redis::Pool;
#[cfg(feature = "sentinel")]
use deadpool_redis::redis::RedisConnectionInfo;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo};

use super::settings::RedisStoreBuilder;
use crate::core::Error;
use crate::core::error::Kind;
#[cfg(feature = "cluster")]
use crate::store::redis::cluster::Cluster;
use crate::store::redis::connections::{ConnSource, Connect, Origin, server_at};
#[cfg(feature = "sentinel")]
use crate::store::redis::connections::{Credentials, Sentinels};
use crate::store::redis::pipeline::Server;
use crate::store::redis::servers::Servers;
use crate::store::redis::store::RedisStore;

impl RedisStoreBuilder {
    /// Connects to `redis://[user:password@]host:port[/db]`.
    ///
    /// With the feature `tls` it also connects to `rediss://…`, and on Unix to
    /// `redis+unix:///path/to/socket[?user=…&pass=…&db=…]`. TLS uses the process's `rustls` provider, or ring if none
    /// is installed.
    ///
    /// # Permissions
    ///
    /// A Redis ACL user needs only these rules, with the prefix of the store in place of `tollgate`:
    ///
    /// ```text
    /// ACL SETUSER limiter on >password ~tollgate:* +evalsha +eval +time +mget +set +setrange +del
    /// ```
    ///
    /// With [`functions`](Self::functions), `+fcall +function|load` replace `+evalsha +eval`. A database in the URL
    /// needs `+select`, and a pool whose connections others use needs `+ping +unwatch`.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is wrong, or the server cannot be reached, refuses the connection, or is not Redis.
    pub async fn connect(self, url: &str) -> Result<RedisStore, Error> {
        let (server, address) = self.server(url)?;
        self.started(server, &address).await
    }

    /// Connects to a Redis Cluster of which some nodes are known, as `redis://[user:password@]host:port`.
    ///
    /// It finds the other nodes and connects to every primary. The user and password of the first URL are used for all
    /// nodes. The user must be allowed to call `CLUSTER SLOTS` and `ASKING` in addition to the commands for [one
    /// server](Self::connect).
    ///
    /// Policies over one key share a slot, and their decision is one script call. Policies over several keys (the
    /// client's and the route's) are decided slot by slot, concurrently: on a Cluster that cannot be one step. They
    /// allow a request together or not at all, and never exceed a limit. But if one part denies or fails, units taken
    /// by the others are refunded in the background. For about a round trip they are missing: other requests may be
    /// denied, and other processes may [cache](crate::store::DenyCache) these denials. A leaky bucket refunds units
    /// only while no later request is queued, and units of a part that timed out may stay taken.
    ///
    /// The store follows slots that move, also under load, and replicas that take over. While a slot moves, a request
    /// with several policies over one key may fail for as long as the counters are on both nodes, or some do not exist
    /// yet. An unavailable primary fails the decisions for its slots, each within the timeout, and no others. After a
    /// few failures the circuit breaker of the primary opens for a moment, and these decisions fail at once (see
    /// [`breakers`](RedisStore::breakers) and [`OnFailure`](crate::OnFailure)). But once the Cluster has noticed the
    /// outage, the Cluster fails all decisions until a replica has taken over, unless `cluster-require-full-coverage`
    /// is `no`. The failover loses counts that were not replicated yet.
    ///
    /// # Errors
    ///
    /// If a setting or a URL is wrong, or if none of the nodes can be reached, belongs to a Cluster and is a Redis.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), tollgate::Error> {
    /// use tollgate::RedisStore;
    ///
    /// let nodes = ["redis://10.0.0.1:6379", "redis://10.0.0.2:6379"];
    /// let store = RedisStore::builder().connect_cluster(nodes).await?;
    /// for (primary, state) in store.breakers() {
    ///     println!("{primary}: {state:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "cluster")]
    pub async fn connect_cluster<U: AsRef<str>>(self, urls: impl IntoIterator<Item = U>) -> Result<RedisStore, Error> {
        let (nodes, address) = self.cluster(urls)?;
        self.started(nodes, &address).await
    }

    /// Connects to the primary that Redis Sentinel knows by this name.
    ///
    /// The URLs are those of the sentinels, as `redis://[user:password@]host:port`, with the user and password for the
    /// sentinels. Set the user and password for the primary with [`primary_credentials`](Self::primary_credentials) or
    /// a [closure](Self::credentials).
    ///
    /// After a failover one decision fails. The new primary makes the next decisions as soon as the sentinels name it.
    /// Counts that the old primary had not replicated yet are lost.
    ///
    /// # Errors
    ///
    /// If a setting or a URL is wrong, both kinds of credentials for the primary are set, no sentinel replies or knows
    /// the name, or the primary cannot be reached, or refuses the connection.
    #[cfg(feature = "sentinel")]
    pub async fn connect_sentinel<U: AsRef<str>>(
        mut self,
        urls: impl IntoIterator<Item = U>,
        name: &str,
    ) -> Result<RedisStore, Error> {
        let (primary, address) = self.sentinels(urls, name)?;
        self.started(primary, &address).await
    }

    /// Uses a pool of the application.
    ///
    /// Like a [lazy](Self::lazy) store, it calls the server with the first decision.
    ///
    /// The pool opens its connections itself, and runs each in a separate task. So a decision takes one more hop
    /// between tasks than over a connection that [`connect`](Self::connect) opens. A lost connection is noticed only by
    /// the first decisions or refunds sent on it, which are lost with it. The first decision also notices a server that
    /// is not Redis. The store keeps the connections that it takes from the pool.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::deadpool_redis::{Config, Runtime};
    /// use tollgate::RedisStore;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Config::from_url("redis://127.0.0.1:6379").create_pool(Some(Runtime::Tokio1))?;
    /// let store = RedisStore::builder().prefix("shop").from_pool(pool)?;
    /// # let _ = store;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If a setting is wrong, or if credentials, [`dial`](Self::dial) or certificates are set, which the pool does not
    /// use.
    pub fn from_pool(self, pool: Pool) -> Result<RedisStore, Error> {
        let connection = self.connection(&[])?;
        #[cfg(feature = "tls")]
        let has_certificates = self.tls.root.is_some() || self.tls.identity.is_some();
        #[cfg(not(feature = "tls"))]
        let has_certificates = false;
        if has_certificates || connection.credentials.is_some() || connection.dial.is_some() {
            let text = "a pool of yours connects by itself: remove credentials, certificates and a closure that dials";
            return Err(Error::invalid(text));
        }
        let server = self.one(connection, Origin::Pool(pool));
        self.build(server)
    }

    fn server(&self, url: &str) -> Result<(Servers, String), Error> {
        let server = server_at(url)?;
        let connect = self.connection(std::slice::from_ref(&server))?;
        let address = server.addr().to_string();
        Ok((self.one(connect, Origin::Server(server)), address))
    }

    #[cfg(feature = "cluster")]
    fn cluster<U: AsRef<str>>(&self, urls: impl IntoIterator<Item = U>) -> Result<(Servers, String), Error> {
        let (known, addresses) = servers_at(urls)?;
        let cluster = Cluster::new(&known, self.connection(&known)?, Arc::new(self.calls.clone()), self.budget)?;
        Ok((Servers::Cluster(cluster), addresses))
    }

    /// Encrypted if the first sentinel is.
    #[cfg(feature = "sentinel")]
    fn sentinels<U: AsRef<str>>(
        &mut self,
        urls: impl IntoIterator<Item = U>,
        name: &str,
    ) -> Result<(Servers, String), Error> {
        let (known, addresses) = servers_at(urls)?;
        let Some(first) = known.first() else {
            return Err(Error::invalid("no URL of a sentinel was given: at least one is needed"));
        };
        if self.primary.is_some() && self.connect.credentials.is_some() {
            let text = "primary_credentials and a closure for credentials are for the same primary";
            return Err(Error::invalid(text));
        }
        let login = self.primary.take().map_or_else(RedisConnectionInfo::default, Credentials::login);
        let (connect, primary) = (self.connection(&known)?, first.clone().set_redis_settings(login));
        let sentinels = Sentinels { known, name: name.to_owned(), primary, first: AtomicUsize::new(0) };
        let address = format!("{name:?}, as named at {addresses}");
        Ok((self.one(connect, Origin::Sentinels(sentinels)), address))
    }

    fn connection(&self, servers: &[ConnectionInfo]) -> Result<Connect, Error> {
        #[cfg(feature = "sentinel")]
        if self.primary.is_some() {
            let text = "primary_credentials are for a primary that sentinels name: use connect_sentinel";
            return Err(Error::invalid(text));
        }
        if self.connect.dial.is_some() && servers.iter().any(|server| matches!(server.addr(), ConnectionAddr::Unix(_)))
        {
            let text = "a Unix socket is opened without a closure that dials: use host:port";
            return Err(Error::invalid(text));
        }
        Ok(Connect {
            calls: self.calls.calls,
            #[cfg(feature = "tls")]
            tls: self.tls.config(servers)?,
            ..self.connect.clone()
        })
    }

    fn one(&self, connect: Connect, origin: Origin) -> Servers {
        Servers::One(Server::new(Arc::new(ConnSource { connect, origin }), Arc::new(self.calls.clone()), None))
    }

    async fn started(self, servers: Servers, address: &str) -> Result<RedisStore, Error> {
        // Time until a server is known to be usable.
        let (is_lazy, limit) = (self.lazy, self.connect.timeout.saturating_mul(4));
        let store = self.build(servers.clone())?;
        if !is_lazy {
            in_time(limit, address, servers.prepare()).await?;
        }
        Ok(store)
    }
}

impl RedisStore {
    /// Connects with the default settings. See [`RedisStoreBuilder::connect`].
    ///
    /// # Errors
    ///
    /// If the URL is wrong, or the server cannot be reached, refuses the connection, or is not Redis.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// Connects to a Cluster with the default settings. See [`RedisStoreBuilder::connect_cluster`].
    ///
    /// # Errors
    ///
    /// If a URL is wrong, or no node can be reached, belongs to a Cluster, and accepts the scripts.
    #[cfg(feature = "cluster")]
    pub async fn connect_cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, Error> {
        Self::builder().connect_cluster(urls).await
    }

    /// Connects to the primary that sentinels know by a name, with the default settings. See
    /// [`RedisStoreBuilder::connect_sentinel`].
    ///
    /// # Errors
    ///
    /// If a URL is wrong, no sentinel replies or knows the name, or the primary cannot be reached, or refuses the
    /// connection.
    #[cfg(feature = "sentinel")]
    pub async fn connect_sentinel<U: AsRef<str>>(urls: impl IntoIterator<Item = U>, name: &str) -> Result<Self, Error> {
        Self::builder().connect_sentinel(urls, name).await
    }

    /// Uses an existing pool, with the default settings.
    pub fn from_pool(pool: Pool) -> Self {
        #[allow(clippy::missing_panics_doc, reason = "the default settings are valid")]
        Self::builder().from_pool(pool).expect("the default settings are valid")
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }
}

/// A timeout stays a timeout. Other errors become errors of the connection.
async fn in_time<T>(limit: Duration, address: &str, ready: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let explained = |error: Error| {
        let text = format!(
            "cannot use Redis at {address}: is it running, are the address, password and database right, and is it of the \
             kind that was given, a single server or a Cluster?"
        );
        Error::new(if error.is_timeout() { Kind::Timeout } else { Kind::Connection }, text).with_source(error)
    };
    match tokio::time::timeout(limit, ready).await {
        Ok(result) => result.map_err(explained),
        Err(late) => Err(explained(Error::new(Kind::Timeout, format!("no reply in {limit:?}")).with_source(late))),
    }
}

#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn servers_at<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<(Vec<ConnectionInfo>, String), Error> {
    let servers: Vec<_> = urls.into_iter().map(|url| server_at(url.as_ref())).collect::<Result<_, _>>()?;
    let addresses: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    Ok((servers, addresses.join(", ")))
}
