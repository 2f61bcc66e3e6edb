//! Which requests a policy applies to.

use std::sync::Arc;

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::Error;
#[cfg(feature = "axum")]
use crate::http::key::{is_template, matched, normal_template};

/// What is shown of a bad template is cut here.
#[cfg(feature = "axum")]
const LONGEST_SHOWN: usize = 64;

/// Says something about the head of a request.
pub(crate) type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

/// Every condition a request has to meet.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    pub(super) methods: Option<Arc<[Method]>>,
    pub(super) routes: Option<Arc<[Box<str>]>>,
    pub(super) when: Option<Arc<Predicate>>,
    pub(super) preflights: bool,
    /// Whether preflights need no key where others do.
    pub(super) keyless_preflights: bool,
}

/// What a policy asks of a request that it applies to, beside not being denied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// It is counted; else it is only judged.
    pub(crate) counted: bool,
    /// It has a key, if the policy wants one of all requests.
    pub(crate) keyed: bool,
}

impl Terms {
    pub(crate) const ALL: Self = Self { counted: true, keyed: true };
    /// Those for clients that are never limited.
    pub(crate) const NONE: Self = Self { counted: false, keyed: false };
}

impl Scope {
    /// Whether the closure of a policy says so, if it has one.
    pub(crate) fn applies_when(&self, parts: &Parts) -> bool {
        self.when.as_ref().is_none_or(|when| when(parts))
    }

    /// What is asked of a request, if the policy applies to it.
    pub(crate) fn terms(&self, parts: &Parts) -> Option<Terms> {
        let covered = self.methods.as_ref().is_none_or(|methods| is_listed(&parts.method, methods))
            && self.routes.as_ref().is_none_or(|routes| is_route(parts, routes))
            && self.applies_when(parts);
        covered.then(|| {
            let spared = Terms { counted: self.preflights, keyed: !self.keyless_preflights };
            if is_preflight(&parts.method, &parts.headers) { spared } else { Terms::ALL }
        })
    }

    /// Refuses templates that no request can match.
    #[cfg(feature = "axum")]
    pub(super) fn check_routes(&self) -> Result<(), Error> {
        self.routes.iter().flat_map(|routes| routes.iter()).try_for_each(|route| check_route(route))
    }

    #[cfg(not(feature = "axum"))]
    #[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "there are no routes")]
    pub(super) fn check_routes(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// HEAD runs the handlers of GET, so a list that names GET names both.
fn is_listed(method: &Method, methods: &[Method]) -> bool {
    methods.contains(method) || (method == Method::HEAD && methods.contains(&Method::GET))
}

/// Refuses a template that no request can match.
#[cfg(feature = "axum")]
pub(crate) fn check_route(route: &str) -> Result<(), Error> {
    if is_template(route) {
        return Ok(());
    }
    let shown: String = route.chars().take(LONGEST_SHOWN).collect();
    Err(Error::invalid(format!(
        "route {shown:?} can never match: give a template of axum 0.8: begin with a slash, write a parameter as {{id}}, up \
         to the end of a segment, one that takes the rest of the path as {{*rest}}, and a brace that is text twice"
    )))
}

/// Whether a browser asks for permission, as the Fetch standard has it: the request itself follows.
fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

#[cfg(feature = "axum")]
fn is_route(parts: &Parts, routes: &[Box<str>]) -> bool {
    matched(parts).is_some_and(|matched| routes.iter().any(|route| normal_template(route) == matched))
}

#[cfg(not(feature = "axum"))]
fn is_route(_: &Parts, _: &[Box<str>]) -> bool {
    false
}
