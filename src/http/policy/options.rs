//! What a policy says of requests, where it has a default.

use std::sync::Arc;

use http::request::Parts;

use super::access::AccessList;
use super::count::Count;
use super::scope::{Predicate, Scope};
use crate::Quota;
use crate::http::key::MissingKey;

/// Says something of a request, by its head.
type OfRequest<T> = dyn Fn(&Parts) -> T + Send + Sync;

/// What has a default, of what is said of requests.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Options {
    pub(super) missing_key: Option<MissingKey>,
    /// Its key is the address by which the layer knows clients.
    pub(super) by_client: bool,
    pub(super) cost_by: Option<Arc<OfRequest<u64>>>,
    pub(super) advertised: bool,
    pub(crate) metered: bool,
    pub(crate) refund_dropped: bool,
    pub(crate) scope: Scope,
    pub(crate) count: Option<Count>,
    pub(super) tier: Option<Arc<OfRequest<Option<Quota>>>>,
    /// Which requests may use what the rule reserves; without it all may.
    pub(super) critical: Option<Arc<Predicate>>,
    pub(crate) allow: Option<Arc<AccessList>>,
    pub(crate) deny: Option<Arc<AccessList>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            missing_key: None,
            by_client: false,
            cost_by: None,
            advertised: true,
            metered: false,
            refund_dropped: false,
            scope: Scope::default(),
            count: None,
            tier: None,
            critical: None,
            allow: None,
            deny: None,
        }
    }
}
