//! The `[server]` table.

use std::num::NonZeroU32;
use std::time::Duration;

use toml::Spanned;

use super::document::ServerTable;
use super::fault::{Fault, choose};
#[cfg(feature = "axum")]
use super::proxies::read_client;
use super::quota::read_period;
use super::values::Whole;
use crate::OnFailure;
#[cfg(feature = "axum")]
use crate::http::key::{self, ClientIp};
use crate::store::FailureRules;

const ON_FAILURE: &[(&str, OnFailure)] =
    &[("fallback", OnFailure::Fallback), ("allow", OnFailure::Allow), ("deny", OnFailure::Deny)];

/// Settings of the server as a whole.
#[derive(Clone, Debug)]
pub struct Server {
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

    /// What happens to requests the store could not decide.
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// For how long all is admitted if that is what happens to requests the store could not decide.
    pub fn allow_for(&self) -> Duration {
        self.allow_for
    }

    /// How many processes share the limits.
    pub fn instances(&self) -> NonZeroU32 {
        self.instances
    }

    pub(super) fn read(table: &ServerTable) -> Result<Self, Fault> {
        let on_failure = table.on_failure.as_ref().map(|rule| choose("on_failure", rule, ON_FAILURE));
        let on_failure = on_failure.transpose()?.unwrap_or_default();
        let instances = table.instances.as_ref().map(read_instances);
        let default = Self::default();
        #[cfg(not(feature = "axum"))]
        refuse_client(table)?;
        Ok(Self {
            #[cfg(feature = "axum")]
            client: read_client(table)?,
            on_failure,
            allow_for: read_allow_for(table, on_failure)?,
            instances: instances.transpose()?.unwrap_or(default.instances),
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

fn read_allow_for(table: &ServerTable, on_failure: OnFailure) -> Result<Duration, Fault> {
    let Some(given) = &table.allow_for else { return Ok(FailureRules::default().allow_for) };
    let time = read_period("allow_for", given)?;
    if time.is_zero() {
        let message = "allow_for of 0 allows nothing: give at least 1ms, or on_failure = \"fallback\"";
        return Err(Fault::at(given.span(), message));
    }
    if on_failure != OnFailure::Allow {
        let message = "allow_for has no effect without a line on_failure = \"allow\": add it, or leave allow_for out";
        return Err(Fault::at(given.span(), message));
    }
    Ok(time)
}

fn read_instances(given: &Spanned<Whole>) -> Result<NonZeroU32, Fault> {
    let Whole(number) = *given.get_ref();
    u32::try_from(number).ok().and_then(NonZeroU32::new).ok_or_else(|| {
        Fault::at(
            given.span(),
            format!("instances {number} is not allowed: give how many processes share the limits, 1 to {}", u32::MAX),
        )
    })
}

#[cfg(not(feature = "axum"))]
fn refuse_client(table: &ServerTable) -> Result<(), Fault> {
    let ServerTable { trusted_proxies, trusted_hops, forwarded, .. } = table;
    let fields = [
        trusted_proxies.as_ref().map(|field| ("trusted_proxies", field.span())),
        trusted_hops.as_ref().map(|field| ("trusted_hops", field.span())),
        forwarded.as_ref().map(|field| ("forwarded", field.span())),
    ];
    let Some((name, span)) = fields.into_iter().flatten().next() else { return Ok(()) };
    Err(Fault::at(span, format!("{name} has a meaning with the feature axum only: turn it on, or leave it out")))
}
