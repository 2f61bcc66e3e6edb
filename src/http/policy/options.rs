//! The options of a policy that concern requests, with their defaults.
//!
//! [`Policy`](super::Policy) sets them, and the admission of a request reads them. Options that need no request are
//! part of the policy's rule.

use std::sync::Arc;

use http::request::Parts;

use super::access::AccessList;
use super::count::Count;
use super::scope::{Predicate, Scope};
use crate::core::Quota;
use crate::http::key::MissingKey;
#[cfg(feature = "axum")]
use crate::http::key::{ClientIp, client_ip};

/// A closure over the head of a request.
type OfRequest<T> = dyn Fn(&Parts) -> T + Send + Sync;

/// The options of a policy; what is not set is `None`, `false` or empty.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Options {
    /// By which client lists of addresses are, where the key has no address, as far as the layer's does not say.
    #[cfg(feature = "axum")]
    pub(super) client: ClientIp,
    /// What happens without a key; `None` is the extractor's own rule.
    pub(super) missing_key: Option<MissingKey>,
    /// Units by the head of a request, instead of the rule's cost; an error is the least that an ambiguous cost may be.
    pub(crate) cost_by: Option<Arc<OfRequest<Result<u64, u64>>>>,
    /// Whether clients receive headers of the policy; `true` by default.
    pub(super) advertised: bool,
    /// Whether the handler reports the real cost.
    pub(crate) metered: bool,
    /// Whether the units of a request are refunded if its client disconnects before the response.
    pub(crate) refund_dropped: bool,
    /// What its units are, unless they are requests; then a request takes none.
    pub(crate) unit: Option<&'static str>,
    pub(crate) scope: Scope,
    /// Which responses count; without it all do.
    pub(crate) count: Option<Count>,
    /// Which responses are strikes of the ban; without it refusals are.
    pub(crate) bans_on: Option<Count>,
    /// The quota by the head of a request; `None` of the closure is the policy's own.
    pub(super) tier: Option<Arc<OfRequest<Option<Quota>>>>,
    /// Which requests may use the rule's reserve; without it all may.
    pub(super) critical: Option<Arc<Predicate>>,
    pub(crate) allow: Option<Arc<AccessList>>,
    pub(crate) deny: Option<Arc<AccessList>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            #[cfg(feature = "axum")]
            client: client_ip(),
            missing_key: None,
            cost_by: None,
            advertised: true,
            metered: false,
            refund_dropped: false,
            unit: None,
            scope: Scope::default(),
            count: None,
            bans_on: None,
            tier: None,
            critical: None,
            allow: None,
            deny: None,
        }
    }
}
