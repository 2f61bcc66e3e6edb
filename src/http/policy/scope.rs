//! Scope of a policy: the requests that it applies to.
//!
//! Browsers send CORS preflights without credentials, but any client can send a request in the form of a preflight. So
//! preflights count like other requests, and may at most lack a key.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;

use crate::core::Error;
use crate::http::key::{STANDARD_METHODS, is_template, matched, normal_template};

/// In characters.
const MAX_SHOWN: usize = 64;

pub(crate) type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

#[derive(Clone, Default)]
pub(crate) struct Scope {
    /// Contains HEAD if it contains GET.
    pub(super) methods: Option<Arc<[Method]>>,
    pub(super) routes: Option<Arc<[Box<str>]>>,
    pub(super) when: Option<Arc<Predicate>>,
    pub(super) keyless_preflights: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// If `false`, only the lists and the key are checked.
    pub(crate) counted: bool,
    pub(crate) keyed: bool,
}

impl Terms {
    pub(crate) const ALL: Self = Self { counted: true, keyed: true };
    pub(crate) const NONE: Self = Self { counted: false, keyed: false };
}

impl Scope {
    pub(crate) fn applies_when(&self, parts: &Parts) -> bool {
        self.when.as_ref().is_none_or(|when| when(parts))
    }

    pub(crate) fn terms(&self, parts: &Parts) -> Option<Terms> {
        let covered = self.methods.as_ref().is_none_or(|methods| is_listed(&parts.method, methods))
            && self.routes.as_ref().is_none_or(|routes| is_route(parts, routes))
            && self.applies_when(parts);
        covered.then(|| {
            let keyed = !(self.keyless_preflights && is_preflight(parts));
            Terms { counted: true, keyed }
        })
    }

    pub(super) fn is_all(&self) -> bool {
        self.methods.is_none() && self.routes.is_none() && self.when.is_none()
    }

    pub(super) fn fault(&self) -> Option<String> {
        let is_empty = |what| format!("{what} is an empty list, so this policy limits nothing: at least one is needed");
        let misspelt = |given: &Method| {
            let is_meant = |method: &&Method| *method != given && method.as_str().eq_ignore_ascii_case(given.as_str());
            let meant = STANDARD_METHODS.iter().find(is_meant)?;
            Some(format!("no request has the method {:?}: use {meant}", given.as_str()))
        };
        let (methods, routes) = (self.methods.as_deref(), self.routes.as_deref());
        let of_methods = methods.and_then(|methods| methods.iter().find_map(misspelt));
        of_methods
            .or_else(|| methods.filter(|methods| methods.is_empty()).map(|_| is_empty("methods")))
            .or_else(|| routes.filter(|routes| routes.is_empty()).map(|_| is_empty("routes")))
            .or_else(|| routes?.iter().find_map(|route| check_route(route).err()).map(|error| error.to_string()))
    }

    /// Explains why a request has no [terms](Self::terms). Runs no closure.
    pub(crate) fn why_not(&self, parts: &Parts) -> Cow<'static, str> {
        if self.methods.as_ref().is_some_and(|methods| !is_listed(&parts.method, methods)) {
            return format!("its methods do not include {}", parts.method).into();
        }
        if self.routes.as_ref().is_some_and(|routes| !is_route(parts, routes)) {
            return match matched(parts) {
                Some(route) => format!("its routes do not include {route}, which matched").into(),
                None => "it is for routes, and none has matched where the layer is".into(),
            };
        }
        if self.keyless_preflights && is_preflight(parts) {
            return "a CORS preflight needs no key".into();
        }
        "its closure (when) returned false".into()
    }
}

fn is_listed(method: &Method, methods: &[Method]) -> bool {
    methods.contains(method) || (method == Method::HEAD && methods.contains(&Method::GET))
}

pub(crate) fn check_route(route: &str) -> Result<(), Error> {
    if is_template(route) {
        return Ok(());
    }
    let shown: String = route.chars().take(MAX_SHOWN).collect();
    Err(Error::invalid(format!(
        "route {shown:?} can never match: use a template of axum 0.8, which begins with a slash; write a parameter as \
         {{id}} at the end of a segment, one for the rest of the path as {{*rest}}, and a literal brace twice"
    )))
}

/// Source: <https://fetch.spec.whatwg.org/#cors-preflight-request>.
fn is_preflight(parts: &Parts) -> bool {
    let Parts { method, headers, .. } = parts;
    *method == Method::OPTIONS && headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

pub(super) fn is_route(parts: &Parts, routes: &[Box<str>]) -> bool {
    matched(parts).is_some_and(|matched| routes.iter().any(|route| normal_template(route) == matched))
}
