//! Which requests a policy applies to.
//!
//! The head of a request comes in; the [`Terms`] on which the policy applies to it go out, or that it
//! does not. CORS preflights are the reason of more than one kind of terms: browsers send them without credentials, and
//! any client can send what looks like one, so they may go uncounted but not past a deny list.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::request::Parts;

use crate::core::Error;
use crate::http::key::{STANDARD_METHODS, is_template, matched, normal_template};

/// The characters of an invalid template that an error shows.
const LONGEST_SHOWN: usize = 64;

/// A condition on the head of a request.
pub(crate) type Predicate = dyn Fn(&Parts) -> bool + Send + Sync;

/// The conditions of a policy, all of which a request has to meet.
#[derive(Clone, Default)]
pub(crate) struct Scope {
    /// The methods; HEAD is in them if GET is.
    pub(super) methods: Option<Arc<[Method]>>,
    /// Templates of routes, as they were given.
    pub(super) routes: Option<Arc<[Box<str>]>>,
    pub(super) when: Option<Arc<Predicate>>,
    /// Whether preflights are counted.
    pub(super) preflights: bool,
    /// Whether preflights need no key where others do.
    pub(super) keyless_preflights: bool,
}

/// What a policy does with a request that it applies to, besides checking its deny list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The request is counted; otherwise only the lists and the key are checked.
    pub(crate) counted: bool,
    /// The request must have a key, if the policy requires one.
    pub(crate) keyed: bool,
}

impl Terms {
    /// Those for a request as any other.
    pub(crate) const ALL: Self = Self { counted: true, keyed: true };
    /// Those for clients on an allow list.
    pub(crate) const NONE: Self = Self { counted: false, keyed: false };
}

impl Scope {
    pub(crate) fn applies_when(&self, parts: &Parts) -> bool {
        self.when.as_ref().is_none_or(|when| when(parts))
    }

    /// Returns the terms on which the policy applies to a request; `None` if it does not.
    pub(crate) fn terms(&self, parts: &Parts) -> Option<Terms> {
        let covered = self.methods.as_ref().is_none_or(|methods| is_listed(&parts.method, methods))
            && self.routes.as_ref().is_none_or(|routes| is_route(parts, routes))
            && self.applies_when(parts);
        covered.then(|| {
            let of_preflights = Terms { counted: self.preflights, keyed: !self.keyless_preflights };
            if is_preflight(parts) { of_preflights } else { Terms::ALL }
        })
    }

    pub(super) fn is_all(&self) -> bool {
        self.methods.is_none() && self.routes.is_none() && self.when.is_none()
    }

    /// Returns why no request may meet the conditions, if none may.
    pub(super) fn fault(&self) -> Option<String> {
        let is_empty = |what| {
            format!("{what} is an empty list, so this policy limits nothing: give at least one, or leave it out")
        };
        let misspelt = |given: &Method| {
            let is_meant = |method: &&Method| *method != given && method.as_str().eq_ignore_ascii_case(given.as_str());
            let meant = STANDARD_METHODS.iter().find(is_meant)?;
            Some(format!("no request has the method {:?}: give {meant}", given.as_str()))
        };
        let (methods, routes) = (self.methods.as_deref(), self.routes.as_deref());
        let of_methods = methods.and_then(|methods| methods.iter().find_map(misspelt));
        of_methods
            .or_else(|| methods.filter(|methods| methods.is_empty()).map(|_| is_empty("methods")))
            .or_else(|| routes.filter(|routes| routes.is_empty()).map(|_| is_empty("routes")))
            .or_else(|| routes?.iter().find_map(|route| check_route(route).err()).map(|error| error.to_string()))
    }

    /// Returns why the policy does not apply to a request without [terms](Self::terms). Runs no closure.
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
        "its closure (when) returned false".into()
    }
}

fn is_listed(method: &Method, methods: &[Method]) -> bool {
    methods.contains(method) || (method == Method::HEAD && methods.contains(&Method::GET))
}

/// Checks that a template can match some request.
///
/// # Errors
///
/// If it cannot, with the template's first characters and the syntax of axum.
pub(crate) fn check_route(route: &str) -> Result<(), Error> {
    if is_template(route) {
        return Ok(());
    }
    let shown: String = route.chars().take(LONGEST_SHOWN).collect();
    Err(Error::invalid(format!(
        "route {shown:?} can never match: give a template of axum 0.8, which begins with a slash; write a parameter as \
         {{id}} at the end of a segment, one for the rest of the path as {{*rest}}, and a literal brace twice"
    )))
}

/// Whether this is a CORS preflight: <https://fetch.spec.whatwg.org/#cors-preflight-request>.
pub(crate) fn is_preflight(parts: &Parts) -> bool {
    let Parts { method, headers, .. } = parts;
    *method == Method::OPTIONS && headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

pub(super) fn is_route(parts: &Parts, routes: &[Box<str>]) -> bool {
    matched(parts).is_some_and(|matched| routes.iter().any(|route| normal_template(route) == matched))
}
