//! Connecting: to one server, a Cluster, or what sentinels name.
//!
//! Settings and URLs come in; a store goes out, whose servers have been connected to and have shown that they are Redis.
//! All of that together takes no longer than four connect timeouts, after which it is an error that names the address.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::Pool;
use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo};

use super::settings::RedisStoreBuilder;
use crate::core::Error;
use crate::core::error::Kind;
#[cfg(feature = "cluster")]
use crate::store::redis::cluster::Cluster;
use crate::store::redis::connections::{Connect, Source, server_at};
use crate::store::redis::pipeline::Server;
use crate::store::redis::servers::Servers;
use crate::store::redis::store::RedisStore;
use crate::store::redis::wire::Calls;

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
    /// [`Tally`](crate::store::Tally) `+hmget +hset +hincrby +hlen +pexpire`.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is wrong, or the server cannot be reached, refuses the connection,
    /// or is no Redis.
    pub async fn connect(self, url: &str) -> Result<RedisStore, Error> {
        let (server, address) = self.server(url, Some(self.calls))?;
        self.prepared(server, &address).await
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
    /// refused, and their refusals be [cached](crate::DenyCache) in other processes, for units that
    /// come back. A leaky bucket refunds units only while no later request is queued, and those of
    /// a part that timed out may stay taken.
    ///
    /// Slots that move, also under load, and replicas that take over are followed. While a slot
    /// moves, a request with several policies over one key may fail for as long as some of their
    /// counters are on either node, or on none yet. A primary that is unavailable fails the
    /// decisions for its slots, each within the budget, and no others; after a few its circuit
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
        let known = servers_at(urls)?;
        let (nodes, address) = (self.cluster(&known)?, addresses(&known));
        self.prepared(nodes, &address).await
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
        let sentinels = servers_at(urls)?;
        let address = format!("{master_name:?}, as named at {}", addresses(&sentinels));
        let primary = self.sentinels(&sentinels, master_name)?;
        self.prepared(primary, &address).await
    }

    /// Uses a pool of the application. Its server is not called before the first decision.
    ///
    /// The pool opens its connections itself, and runs each in a task of its own. So a decision takes one more hop
    /// between tasks than over a connection that [`connect`](Self::connect) opens, and a lost connection is noticed
    /// only by the first decisions or refunds that are sent on it, which are lost with it. A server that is not Redis is noticed by the first decision, too.
    /// The store keeps the connections that it takes from the pool.
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
        if self.credentials.is_some() || self.dialer.is_some() {
            let text = "a pool of yours connects by itself: leave out credentials and a closure that dials";
            return Err(Error::invalid(text));
        }
        let source = self.connection(&[], Some(self.calls))?.to_pool(pool);
        let servers = self.one(source);
        self.build(servers)
    }

    /// Returns the server at a URL, which is not connected to yet, and its address.
    ///
    /// # Errors
    ///
    /// If the URL is wrong, or a setting of connections.
    pub(super) fn server(&self, url: &str, calls: Option<Calls>) -> Result<(Servers, String), Error> {
        let known = server_at(url)?;
        let connect = self.connection(std::slice::from_ref(&known), calls)?;
        Ok((self.one(connect.to_server(connect.server(&known))), known.addr().to_string()))
    }

    fn one(&self, source: Source) -> Servers {
        Servers::One(Server::new(Arc::new(source), self.calls(), None))
    }

    /// Returns a Cluster of which these nodes are known, none of which is connected to yet.
    #[cfg(feature = "cluster")]
    pub(super) fn cluster(&self, known: &[ConnectionInfo]) -> Result<Servers, Error> {
        let connect = self.connection(known, Some(self.calls))?;
        Ok(Servers::Cluster(Cluster::new(known, connect, self.calls(), self.budget)?))
    }

    /// Returns the primary that these sentinels name, none of which is connected to yet.
    #[cfg(feature = "sentinel")]
    pub(super) fn sentinels(&self, sentinels: &[ConnectionInfo], master_name: &str) -> Result<Servers, Error> {
        let connect = self.connection(sentinels, Some(self.calls))?;
        Ok(self.one(connect.by_sentinels(sentinels, master_name, self.primary.clone())?))
    }

    /// Returns how some servers are connected to.
    fn connection(&self, servers: &[ConnectionInfo], calls: Option<Calls>) -> Result<Connect, Error> {
        let addresses: Vec<ConnectionAddr> = servers.iter().map(|server| server.addr().clone()).collect();
        let encryption = self.tls.encryption(&addresses)?;
        let (timeout, credentials, dialer) = (self.connect_timeout, self.credentials.clone(), self.dialer.clone());
        Ok(Connect { timeout, encryption, credentials, dialer, calls })
    }

    /// Makes a store that is sent commands only, and its address. Its server is not checked for its Lua.
    ///
    /// # Errors
    ///
    /// If a setting or the URL is wrong.
    #[cfg(feature = "redis-cell")]
    pub(in crate::store) fn without_scripts(self, url: &str) -> Result<(RedisStore, String), Error> {
        let (server, address) = self.server(url, None)?;
        Ok((self.build(server)?, address))
    }

    /// Makes a store once its servers are ready. `address` is in the error.
    async fn prepared(self, servers: Servers, address: &str) -> Result<RedisStore, Error> {
        let limit = self.longest_start();
        let engine = self.engine(servers)?;
        in_time(limit, address, engine.servers.prepare()).await?;
        Ok(RedisStore::new(engine))
    }

    /// Returns how long it may take until a server is known to be usable: four connect timeouts.
    pub(in crate::store) fn longest_start(&self) -> Duration {
        self.connect_timeout.saturating_mul(4)
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

/// Reads the URLs of several servers.
///
/// # Errors
///
/// If one of them is wrong.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
pub(in crate::store::redis) fn servers_at<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
) -> Result<Vec<ConnectionInfo>, Error> {
    urls.into_iter().map(|url| server_at(url.as_ref())).collect()
}

/// Returns the addresses of servers, for an error.
#[cfg(any(feature = "cluster", feature = "sentinel"))]
fn addresses(servers: &[ConnectionInfo]) -> String {
    let addresses: Vec<String> = servers.iter().map(|server| server.addr().to_string()).collect();
    addresses.join(", ")
}
