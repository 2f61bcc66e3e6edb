//! What a store can do, for layers and limiters that are built on it.

use std::time::Duration;

use super::{Requirement, StoreId};
use crate::core::Error;

/// What a store can do: see [`Store::capabilities`](crate::Store::capabilities).
///
/// # Examples
///
/// ```
/// use tollgate::{MemoryStore, Store};
///
/// let capabilities = MemoryStore::new().capabilities(&[])?;
/// assert!(capabilities.id.is_some());
/// assert_eq!(capabilities.budget, None);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The time within which every decision is made, if the store limits it by itself.
    ///
    /// Unless a layer is given a [budget](crate::RateLimitLayer::budget) of its own, it is this one. If the layer's is
    /// shorter, each decision gets a [deadline](super::Ask::deadline), which a store with a budget keeps as well. Without
    /// one, the layer limits by a timer of its own what has to be waited for.
    pub budget: Option<Duration>,
    /// The identity of the counters: stores with the same one count together. `None` where that is not known.
    pub id: Option<StoreId>,
}

impl Capabilities {
    /// Those of a store that has no [bans](super::Check::ban): no budget and no identity.
    ///
    /// # Errors
    ///
    /// If a policy has a ban.
    pub fn without_bans(requirements: &[Requirement<'_>]) -> Result<Self, Error> {
        match requirements.iter().find(|requirement| requirement.bans) {
            Some(Requirement { policy, .. }) => Err(Error::invalid(format!(
                "policy {:?} has a ban, which this store does not have: leave it out, or choose another store",
                policy.as_str()
            ))),
            None => Ok(Self::default()),
        }
    }

    /// Those of a store that decides policies and bans together, as bans count like checks: no budget and no identity.
    ///
    /// # Errors
    ///
    /// If there are more of both than one decision may have.
    pub(super) fn with_few_bans(requirements: &[Requirement<'_>], most: usize) -> Result<Self, Error> {
        let (policies, bans) = (requirements.len(), requirements.iter().filter(|requirement| requirement.bans).count());
        if bans == 0 || policies + bans <= most {
            return Ok(Self::default());
        }
        Err(Error::invalid(format!(
            "{policies} policies, {bans} of them with a ban, are too many for one decision: give at most {most} together"
        )))
    }

    /// Sets the time within which every decision is made.
    #[must_use]
    pub fn budget(self, budget: Duration) -> Self {
        Self { budget: Some(budget), ..self }
    }

    /// Sets the identity of the counters.
    #[must_use]
    pub fn id(self, id: StoreId) -> Self {
        Self { id: Some(id), ..self }
    }
}
