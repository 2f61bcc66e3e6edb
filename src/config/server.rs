//! The `[server]` table.

use std::num::NonZeroU32;

use toml::Spanned;

use super::document::{ServerTable, Whole};
use super::fault::{Fault, choose};
use crate::OnFailure;

const ON_FAILURE: &[(&str, OnFailure)] =
    &[("fallback", OnFailure::Fallback), ("allow", OnFailure::Allow), ("deny", OnFailure::Deny)];

/// Settings of the server as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    on_failure: OnFailure,
    instances: NonZeroU32,
}

impl Server {
    /// What happens to requests the store could not decide.
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// How many processes share the limits.
    pub fn instances(&self) -> NonZeroU32 {
        self.instances
    }

    pub(super) fn read(table: &ServerTable) -> Result<Self, Fault> {
        let on_failure = table.on_failure.as_ref().map(|rule| choose("on_failure", rule, ON_FAILURE));
        let instances = table.instances.as_ref().map(read_instances);
        let default = Self::default();
        Ok(Self {
            on_failure: on_failure.transpose()?.unwrap_or(default.on_failure),
            instances: instances.transpose()?.unwrap_or(default.instances),
        })
    }
}

impl Default for Server {
    fn default() -> Self {
        Self { on_failure: OnFailure::default(), instances: NonZeroU32::MIN }
    }
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
