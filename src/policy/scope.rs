//! Which requests a policy applies to.

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method};

/// Says something about the head of a request.
pub(crate) type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

/// Every condition a request has to meet.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    pub(super) methods: Option<Arc<[Method]>>,
    pub(super) routes: Option<Arc<[Box<str>]>>,
    pub(super) when: Option<Arc<Predicate>>,
    pub(super) preflights: bool,
}

impl Scope {
    /// Whether the closure of a policy says so, if it has one.
    pub(crate) fn applies_when(&self, parts: &Parts) -> bool {
        self.when.as_ref().is_none_or(|when| when(parts))
    }

    pub(crate) fn covers(&self, parts: &Parts) -> bool {
        (self.preflights || !is_preflight(&parts.method, &parts.headers))
            && self.methods.as_ref().is_none_or(|methods| methods.contains(&parts.method))
            && self.routes.as_ref().is_none_or(|routes| is_route(parts, routes))
            && self.when.as_ref().is_none_or(|when| when(parts))
    }
}

/// Whether a browser asks for permission, as the Fetch standard has it: the request itself follows.
fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

#[cfg(feature = "axum")]
fn is_route(parts: &Parts, routes: &[Box<str>]) -> bool {
    let matched = parts.extensions.get::<axum::extract::MatchedPath>();
    matched.is_some_and(|matched| routes.iter().any(|route| &**route == matched.as_str()))
}

#[cfg(not(feature = "axum"))]
fn is_route(_: &Parts, _: &[Box<str>]) -> bool {
    false
}
