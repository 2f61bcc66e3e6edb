//! Connecting, at once or with the first decision: to one server, a Cluster, or what sentinels name.
//!
//! Settings and URLs are checked before any store exists. Connecting at once ends when the servers have shown that they
//! are Redis, and takes no longer than four connect timeouts, after which it is an error that names the address.

use std::sync::Arc;
#[cfg(feature = "sentinel")]
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use deadpool_redis::Pool;
use deadpool_redis::redis::ConnectionInfo;

use super::settings::RedisStoreBuilder;
use crate::core::Error;
use crate::core::error::Kind;
#[cfg(feature = "cluster")]
use crate::store::redis::cluster::Cluster;
#[cfg(feature = "sentinel")]
use crate::store::redis::connections::Sentinels;
use crate::store::redis::connections::{ConnSource, Connect, Origin, server_at};
use crate::store::redis::pipeline::Server;
use crate::store::redis::servers::Servers;
use crate::store::redis::store::RedisStore;

impl RedisStoreBuilder {
    /// Connects to `redis://[user:password@]host:port[/db]`: with the feature
    /// `tls` also to `rediss://…`, on Unix also to `redis+unix:///path/to/socket[?user=…&pass=…&db=…]`.
    ///
    /// TLS takes the process's `rustls` provider, or ring if none is installed.
    ///
    /// # Permissions
    ///
    /// A user of Redis's ACL needs no more than this, with the prefix as it is set:
    ///
    /// ```text
    /// ACL SETUSER limiter on >password ~tollgate:* +evalsha +eval +time +mget +set +setrange +del
    /// ```
    ///
    /// For [`functions`](Self::functions), `+fcall +function|load` take the place of `+evalsha +eval`. A
    /// database in the URL takes `+select`, a pool whose connections others use too `+ping +unwatch`, and a
    /// [`Tally`](crate::ratio::Tally) `+hmget +hset +hincrby +hlen +pexpire`.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is wrong, or the server cannot be reached, refuses the connection,
    /// or is no Redis.
    pub async fn connect(self, url: &str) -> Result<RedisStore, Error> {
        let (server, address) = self.server(url, true)?;
        self.prepared(server, &address).await
    }

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
        let (server, _) = self.server(url, true)?;
        self.build(server)
    }

    /// Connects to a Redis Cluster of which some nodes are known, as
    /// `redis://[user:password@]host:port`, finds the others and connects to every
    /// primary. User and password are those of the first URL, for all nodes; the user must be
    /// allowed to call `CLUSTER SLOTS` and `ASKING` besides what [one server](Self::connect) is
    /// sent.
    ///
    /// Policies over one key share a slot, and their decision is one script call. Those over
    /// several keys (the client's and the route's) are decided slot by slot, at the same time: on a
    /// Cluster that cannot be one step. They admit a request together or not at all, and never more
    /// than any limit; but if one part refuses or fails, what the others took is refunded in the
    /// background. For that moment, about a round trip, it is missing: other requests may be
    /// refused, and their refusals be [cached](crate::store::DenyCache) in other processes, for units that
    /// come back. A leaky bucket refunds units only while no later request is queued, and those of
    /// a part that timed out may stay taken.
    ///
    /// Slots that move, also under load, and replicas that take over are followed. While a slot
    /// moves, a request with several policies over one key may fail for as long as some of their
    /// counters are on either node, or on none yet. A primary that is unavailable fails the
    /// decisions for its slots, each within the timeout, and no others; after a few its circuit
    /// breaker opens for a moment, and they fail at once (see [`breakers`](RedisStore::breakers)
    /// and [`OnFailure`](crate::OnFailure)). But once the Cluster has noticed, it refuses all of
    /// them until a replica has taken over, unless its `cluster-require-full-coverage` is `no`.
    /// What had not yet been replicated is not counted then.
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
        self.prepared(nodes, &address).await
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
        let (nodes, _) = self.cluster(urls)?;
        self.build(nodes)
    }

    /// Connects to the primary that Redis Sentinel knows by this name.
    ///
    /// The URLs, `redis://[user:password@]host:port`, are those of the sentinels, and so are their user and password.
    /// Those for the primary are set with [`primary_user`](Self::primary_user) and
    /// [`primary_password`](Self::primary_password).
    ///
    /// After a failover a decision fails once, and the next ones are made by the new primary as soon
    /// as the sentinels name it. What the old one had not yet replicated is not counted.
    ///
    /// # Errors
    ///
    /// If a setting or a URL is wrong, no sentinel replies or knows the name, or the primary cannot be
    /// reached, or refuses the connection.
    #[cfg(feature = "sentinel")]
    pub async fn connect_sentinel<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
        master_name: &str,
    ) -> Result<RedisStore, Error> {
        let (primary, address) = self.sentinels(urls, master_name)?;
        self.prepared(primary, &address).await
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
        let (primary, _) = self.sentinels(urls, master_name)?;
        self.build(primary)
    }

    /// Uses a pool of the application. Its server is not called before the first decision.
    ///
    /// The pool opens its connections itself, and runs each in a task of its own. So a decision takes one more hop
    /// between tasks than over a connection that [`connect`](Self::connect) opens, and a lost connection is noticed
    /// only by the first decisions or refunds that are sent on it, which are lost with it. A server that is not Redis is
    /// noticed by the first decision, too. The store keeps the connections that it takes from the pool.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::RedisStore;
    /// use tollgate::deadpool_redis::{Config, Runtime};
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
    /// If a setting is wrong, or if [`credentials`](Self::credentials) or [`dial`](Self::dial) is set, which the pool
    /// does not use.
    pub fn from_pool(self, pool: Pool) -> Result<RedisStore, Error> {
        if self.connect.credentials.is_some() || self.connect.dial.is_some() {
            let text = "a pool of yours connects by itself: leave out credentials and a closure that dials";
            return Err(Error::invalid(text));
        }
        let server = self.one(self.connection(&[])?, Origin::Pool(pool));
        self.build(server)
    }

    /// Returns the server at a URL, which is not connected to yet, and its address. `calls_lua` is false for a store
    /// that is sent commands only: then its Lua is not checked.
    fn server(&self, url: &str, calls_lua: bool) -> Result<(Servers, String), Error> {
        let server = server_at(url)?;
        let mut connect = self.connection(std::slice::from_ref(&server))?;
        connect.calls = connect.calls.filter(|_| calls_lua);
        let address = server.addr().to_string();
        Ok((self.one(connect, Origin::Server(server)), address))
    }

    /// Returns a Cluster of which these nodes are known, none of which is connected to yet, and their addresses.
    #[cfg(feature = "cluster")]
    fn cluster<U: AsRef<str>>(&self, urls: impl IntoIterator<Item = U>) -> Result<(Servers, String), Error> {
        let (known, addresses) = servers_at(urls)?;
        let cluster = Cluster::new(&known, self.connection(&known)?, Arc::new(self.calls.clone()), self.budget)?;
        Ok((Servers::Cluster(cluster), addresses))
    }

    /// Returns the primary that sentinels name, none of which is connected to yet, and where it is. It is encrypted if
    /// the first sentinel is.
    #[cfg(feature = "sentinel")]
    fn sentinels<U: AsRef<str>>(
        &self,
        urls: impl IntoIterator<Item = U>,
        name: &str,
    ) -> Result<(Servers, String), Error> {
        let (known, addresses) = servers_at(urls)?;
        let Some(first) = known.first() else {
            return Err(Error::invalid("no URL of a sentinel was given: give at least one"));
        };
        let (connect, primary) = (self.connection(&known)?, first.clone().set_redis_settings(self.primary.clone()));
        let sentinels = Sentinels { known, name: name.to_owned(), primary, first: AtomicUsize::new(0) };
        let address = format!("{name:?}, as named at {addresses}");
        Ok((self.one(connect, Origin::Sentinels(sentinels)), address))
    }

    /// Returns how some servers are connected to.
    #[cfg_attr(
        not(feature = "tls"),
        allow(unused_variables, clippy::unnecessary_wraps, reason = "nothing is encrypted then")
    )]
    fn connection(&self, servers: &[ConnectionInfo]) -> Result<Connect, Error> {
        Ok(Connect {
            calls: Some(self.calls.calls),
            #[cfg(feature = "tls")]
            tls: self.tls.config(servers)?,
            ..self.connect.clone()
        })
    }

    fn one(&self, connect: Connect, origin: Origin) -> Servers {
        Servers::One(Server::new(Arc::new(ConnSource { connect, origin }), Arc::new(self.calls.clone()), None))
    }

    /// Makes a store that is sent commands only, and its address. Its server is not checked for its Lua.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is wrong.
    #[cfg(feature = "redis-cell")]
    pub(in crate::store) fn without_scripts(self, url: &str) -> Result<(RedisStore, String), Error> {
        let (server, address) = self.server(url, false)?;
        Ok((self.build(server)?, address))
    }

    /// Makes a store once its servers are ready. `address` is in the error.
    async fn prepared(self, servers: Servers, address: &str) -> Result<RedisStore, Error> {
        let limit = self.longest_start();
        let store = self.build(servers.clone())?;
        in_time(limit, address, servers.prepare()).await?;
        Ok(store)
    }

    /// Returns how long it may take until a server is known to be usable: four connect timeouts.
    pub(in crate::store) fn longest_start(&self) -> Duration {
        self.connect.timeout.saturating_mul(4)
    }
}

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

/// Bounds the time in which servers show that they are usable. `address` says in the error where
/// they are.
///
/// # Errors
///
/// Those of the call, explained, as errors of the connection; a timeout stays one.
pub(in crate::store) async fn in_time<T>(
    limit: Duration,
    address: &str,
    ready: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
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

/// Reads the URLs of several servers. Returns their addresses, too, for an error.
///
/// # Errors
///
/// If one of them is wrong.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn servers_at<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<(Vec<ConnectionInfo>, String), Error> {
    let servers: Vec<_> = urls.into_iter().map(|url| server_at(url.as_ref())).collect::<Result<_, _>>()?;
    let addresses: Vec<_> = servers.iter().map(|server| server.addr().to_string()).collect();
    Ok((servers, addresses.join(", ")))
}
