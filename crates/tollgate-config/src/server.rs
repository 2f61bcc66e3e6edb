//! The `[server]` table: how clients' addresses are determined, and the reaction to an unavailable store.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;
#[cfg(feature = "axum")]
use tollgate::{
    Error, MemoryStore, RateLimitLayer,
    key::{self, ClientIp},
};
use tollgate::{LiveLayer, OnFailure};
use toml::Spanned;

#[cfg(feature = "axum")]
use super::error::At;
use super::error::Fault;
#[cfg(feature = "axum")]
use super::headers::header_name;
use super::values::{Given, Period};

const ALLOW_FOR: Duration = Duration::from_secs(60);

#[cfg(feature = "axum")]
const MAX_HOPS: u64 = 64;

#[derive(Clone, Debug)]
pub(super) struct Server {
    #[cfg(feature = "axum")]
    pub(super) client: ClientIp,
    pub(super) on_failure: OnFailure,
    pub(super) allow_for: Duration,
    pub(super) instances: NonZeroU32,
}

impl Server {
    pub(super) fn differing(&self, layer: &LiveLayer) -> Vec<&'static str> {
        let changes = [
            ("on_failure", self.on_failure != layer.on_failure()),
            ("allow_for", self.allow_for != layer.allow_for()),
            ("instances", self.instances != layer.instances()),
        ];
        changes.into_iter().filter(|(_, changes)| *changes).map(|(name, _)| name).collect()
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            #[cfg(feature = "axum")]
            client: key::client_ip(),
            on_failure: OnFailure::default(),
            allow_for: ALLOW_FOR,
            instances: NonZeroU32::MIN,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, under [server]")]
pub(super) struct ServerTable {
    trusted_proxies: Given<Vec<Spanned<String>>>,
    trusted_hops: Given<u64>,
    trusted_unix_socket: Given<bool>,
    forwarded: Given<String>,
    on_failure: Given<String>,
    allow_for: Given<Period>,
    instances: Given<NonZeroU32>,
}

impl ServerTable {
    pub(super) fn build(&self, has_others: bool) -> Result<Server, Fault> {
        let mut server = Server::default();
        self.trusted_proxies.needs_axum("trusted_proxies")?;
        self.trusted_hops.needs_axum("trusted_hops")?;
        self.trusted_unix_socket.needs_axum("trusted_unix_socket")?;
        self.forwarded.needs_axum("forwarded")?;
        #[cfg(feature = "axum")]
        (server.client = self.client()?);
        let known = [("fallback", OnFailure::Fallback), ("allow", OnFailure::Allow), ("deny", OnFailure::Deny)];
        server.on_failure = self.on_failure.choose("on_failure", &known)?.unwrap_or_default();
        let allows = server.on_failure == OnFailure::Allow;
        self.allow_for.needs("allow_for", allows, "a line on_failure = \"allow\"")?;
        if let Some(time) = &self.allow_for.0 {
            server.allow_for = time.get_ref().0;
            let message = "allow_for of 0 allows nothing: it must be at least 1ms, or on_failure = \"fallback\"";
            if server.allow_for.is_zero() {
                return Err(Fault::new(time, message));
            }
        }
        let has_use = has_others || server.on_failure != OnFailure::Deny;
        self.instances.needs("instances", has_use, "on_failure = \"fallback\" or \"allow\"")?;
        server.instances = self.instances.get().copied().unwrap_or(server.instances);
        Ok(server)
    }

    #[cfg(feature = "axum")]
    fn client(&self) -> Result<ClientIp, Fault> {
        let mut client = key::client_ip();
        if let Some(proxies) = &self.trusted_proxies.0 {
            for proxy in proxies.get_ref() {
                key::client_ip().try_trusted_proxies([proxy.get_ref()]).and_then(check).at(proxy)?;
            }
            client = client.trusted_proxies(proxies.get_ref().iter().map(Spanned::get_ref));
            check(client.clone()).at(proxies)?;
        }
        if let Some(hops) = &self.trusted_hops.0 {
            let number = *hops.get_ref();
            let message = format!("trusted_hops {number} is not allowed: use the number of proxies, 0 to {MAX_HOPS}");
            let proxies = usize::try_from(number).ok().filter(|_| number <= MAX_HOPS).ok_or(message).at(hops)?;
            client = client.trusted_hops(proxies);
            if self.trusted_proxies.get().is_some() {
                let message = "trusted_hops and trusted_proxies exclude each other";
                return Err(Fault::new(hops, message));
            }
        }
        let is_socket = self.trusted_unix_socket.is_on();
        if is_socket {
            client = client.trusted_unix_socket();
        }
        let has_proxies = self.trusted_proxies.get().is_some_and(|proxies| !proxies.is_empty());
        let trusts = has_proxies || self.trusted_hops.get().is_some_and(|hops| *hops > 0) || is_socket;
        let proxy = "a trusted proxy, by trusted_proxies = [\"...\"], trusted_hops = N or trusted_unix_socket = true";
        self.forwarded.needs("forwarded", trusts, proxy)?;
        let Some(header) = &self.forwarded.0 else { return Ok(client) };
        match header.get_ref().to_ascii_lowercase().as_str() {
            "x-forwarded-for" => Ok(client),
            "forwarded" => Ok(client.forwarded()),
            name => Ok(client.header(header_name("forwarded", name).at(header)?.as_str())),
        }
    }
}

#[cfg(feature = "axum")]
fn check(client: ClientIp) -> Result<(), Error> {
    RateLimitLayer::composite(MemoryStore::new()).try_client(client).map(drop)
}
