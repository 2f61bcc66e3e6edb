//! The `[server]` table: how clients' addresses are determined, and what is done while the store is unavailable.
//!
//! A table comes in, or nothing, and a [`Server`] goes out, which policies' keys and the layer are built with.
//! Fields that need the feature `axum` are errors without it, as ignoring them would count the wrong clients.

use std::num::NonZeroU32;
use std::time::Duration;

use super::document::{Field, Table};
use crate::core::Error;
#[cfg(feature = "axum")]
use crate::http::key::{self, ClientIp};
use crate::store::{FailureRules, OnFailure};

/// All fields of the server.
const FIELDS: &[&str] =
    &["trusted_proxies", "trusted_hops", "forwarded", "trusted_unix_socket", "on_failure", "allow_for", "instances"];

/// The words of the field `on_failure`.
const ON_FAILURE: &[(&str, OnFailure)] =
    &[("fallback", OnFailure::Fallback), ("allow", OnFailure::Allow), ("deny", OnFailure::Deny)];

/// No chain of proxies is read further.
#[cfg(feature = "axum")]
const MOST_HOPS: u64 = 64;

/// Settings of the server as a whole.
///
/// # Examples
///
/// ```
/// use tollgate::OnFailure;
/// use tollgate::config::Config;
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let config = Config::from_toml("[server]\non_failure = \"deny\"\ninstances = 4")?;
/// assert_eq!(config.server().on_failure(), OnFailure::Deny);
/// assert_eq!(config.server().instances().get(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Server {
    /// How a client's address is known: by the connection, unless proxies are trusted.
    #[cfg(feature = "axum")]
    client: ClientIp,
    on_failure: OnFailure,
    allow_for: Duration,
    instances: NonZeroU32,
}

impl Server {
    /// How the client's address is known: the file's keys `client_ip` and its lists of addresses
    /// know it that way already.
    #[cfg(feature = "axum")]
    pub fn client(&self) -> &ClientIp {
        &self.client
    }

    /// Returns what happens to requests the store could not decide; by default a local store decides.
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// Returns for how long all is admitted in one outage, if `on_failure` is `"allow"`; 60 s by default.
    pub fn allow_for(&self) -> Duration {
        self.allow_for
    }

    /// Returns how many processes share the limits; 1 by default.
    pub fn instances(&self) -> NonZeroU32 {
        self.instances
    }

    /// Returns the settings that differ from those of a layer in use, which cannot be replaced.
    pub(super) fn differing(&self, layer: FailureRules) -> Vec<&'static str> {
        let changes = [
            ("on_failure", self.on_failure != layer.on_failure),
            ("allow_for", self.allow_for != layer.allow_for),
            ("instances", self.instances.get() != layer.instances),
        ];
        changes.into_iter().filter(|(_, changes)| *changes).map(|(name, _)| name).collect()
    }

    /// Reads the table. Without the feature `axum` it must not set how clients' addresses are determined.
    pub(super) fn read(given: Field<'_>) -> Result<Self, Error> {
        let table = given.table("a table, under [server]")?.only(FIELDS)?;
        let on_failure = table.get("on_failure").map(|rule| rule.choose(ON_FAILURE)).transpose()?.unwrap_or_default();
        let instances = table.get("instances").map(read_instances).transpose()?;
        #[cfg(not(feature = "axum"))]
        refuse_client(table)?;
        Ok(Self {
            #[cfg(feature = "axum")]
            client: with_unix_socket(read_client(table)?, table)?,
            on_failure,
            allow_for: read_allow_for(table, on_failure)?,
            instances: instances.unwrap_or(NonZeroU32::MIN),
        })
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            #[cfg(feature = "axum")]
            client: key::client_ip(),
            on_failure: OnFailure::default(),
            allow_for: FailureRules::default().allow_for,
            instances: NonZeroU32::MIN,
        }
    }
}

fn read_allow_for(table: Table<'_>, on_failure: OnFailure) -> Result<Duration, Error> {
    let Some(given) = table.get("allow_for") else { return Ok(FailureRules::default().allow_for) };
    let time = given.period()?;
    if time.is_zero() {
        return Err(given.error("allow_for of 0 allows nothing: give at least 1ms, or on_failure = \"fallback\""));
    }
    if on_failure != OnFailure::Allow {
        return Err(given
            .error("allow_for has no effect without a line on_failure = \"allow\": add it, or leave allow_for out"));
    }
    Ok(time)
}

fn read_instances(given: Field<'_>) -> Result<NonZeroU32, Error> {
    let number = given.whole()?;
    u32::try_from(number).ok().and_then(NonZeroU32::new).ok_or_else(|| {
        let allowed = format!("give how many processes share the limits, 1 to {}", u32::MAX);
        given.error(format!("instances {number} is not allowed: {allowed}"))
    })
}

#[cfg(not(feature = "axum"))]
fn refuse_client(table: Table<'_>) -> Result<(), Error> {
    let Some(given) = FIELDS[..4].iter().find_map(|name| table.get(name)) else { return Ok(()) };
    let name = given.name;
    Err(given.error(format!("{name} has a meaning with the feature axum only: enable it, or leave it out")))
}

/// Which proxies are trusted for the client's address.
#[cfg(feature = "axum")]
fn read_client(table: Table<'_>) -> Result<ClientIp, Error> {
    let client = match (table.get("trusted_proxies"), table.get("trusted_hops")) {
        (Some(_), Some(hops)) => {
            let message = "trusted_hops and trusted_proxies exclude each other: leave one of them out";
            return Err(hops.error(message));
        }
        (Some(proxies), None) => Some(trust_proxies(proxies)?),
        (None, Some(hops)) => Some(trust_hops(hops)?),
        // Its header counts, too.
        (None, None) => table.switched_on("trusted_unix_socket")?.map(|_| key::client_ip()),
    };
    match (client, table.get("forwarded")) {
        (Some(client), Some(header)) => read_from(client, header),
        (Some(client), None) => Ok(client),
        (None, Some(header)) => Err(header.error(
            "forwarded has no effect without a trusted proxy: add trusted_proxies = [\"...\"], trusted_hops = N or \
             trusted_unix_socket = true",
        )),
        (None, None) => Ok(key::client_ip()),
    }
}

/// Trusts the proxy at the other end of a Unix socket, if that is set.
#[cfg(feature = "axum")]
fn with_unix_socket(client: ClientIp, table: Table<'_>) -> Result<ClientIp, Error> {
    Ok(match table.switched_on("trusted_unix_socket")? {
        Some(_) => client.trusted_unix_socket(),
        None => client,
    })
}

#[cfg(feature = "axum")]
fn trust_proxies(given: Field<'_>) -> Result<ClientIp, Error> {
    let mut proxies = Vec::new();
    for proxy in given.texts("trusted proxy")? {
        let text = proxy.text()?;
        if let Err(error) = key::client_ip().try_trusted_proxies([text]) {
            return Err(proxy.error(error));
        }
        proxies.push(text);
    }
    Ok(key::client_ip().trusted_proxies(proxies))
}

#[cfg(feature = "axum")]
fn trust_hops(given: Field<'_>) -> Result<ClientIp, Error> {
    let number = given.whole()?;
    let hops = usize::try_from(number).ok().filter(|_| number <= MOST_HOPS);
    hops.map(|hops| key::client_ip().trusted_hops(hops)).ok_or_else(|| {
        let allowed = format!("give how many proxies there are, 0 to {MOST_HOPS}");
        given.error(format!("trusted_hops {number} is not allowed: {allowed}"))
    })
}

#[cfg(feature = "axum")]
fn read_from(client: ClientIp, given: Field<'_>) -> Result<ClientIp, Error> {
    match given.header_name("forwarded", given.text()?)?.as_str() {
        "x-forwarded-for" => Ok(client),
        "forwarded" => Ok(client.forwarded()),
        name => Ok(client.header(name)),
    }
}
