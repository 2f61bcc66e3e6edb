//! Which routes of a policy match requests: one that never does is a limit that never applies.
//!
//! A router matches templates only in layers within it, and with the prefixes of all routers around: `/api/login` for
//! the route `/login` of a router that is nested at `/api`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::http::key::normal_template;

/// The routes of one policy.
pub(super) struct Routes(Box<[Route]>);

/// One route of a policy.
struct Route {
    /// In its normal form.
    template: Box<str>,
    /// Whether it is a path as well: it has no parameters.
    is_static: bool,
    has_matched: AtomicBool,
    /// A longer template that matched and ends with this one.
    seen_as: OnceLock<Box<str>>,
}

/// A request whose path is a route of the policy, and which that route did not match.
pub(super) struct Trap<'a> {
    route: &'a str,
    /// The template that matched instead; `None` if no route did.
    matched: Option<&'a str>,
}

impl Routes {
    /// Creates it for templates as they were given.
    pub(super) fn of(templates: &[Box<str>]) -> Self {
        Self(templates.iter().map(|template| Route::new(normal_template(template))).collect())
    }

    /// Notes the template that matched a request; returns the trap that its path shows, if it is one. `had_route` is
    /// whether a route has matched any request of the layer.
    pub(super) fn trap<'a>(&'a self, matched: Option<&'a str>, path: &str, had_route: bool) -> Option<Trap<'a>> {
        let mut trap = None;
        for route in &self.0 {
            route.note(matched);
            // A path that no route matches, where others do, may be any that clients try.
            let is_known = matched.is_some() || !had_route;
            if is_known && route.is_static && *route.template == *path && !route.has_matched.load(Relaxed) {
                trap = trap.or(Some(Trap { route: &route.template, matched }));
            }
        }
        trap
    }

    /// Returns whether both are the same routes.
    pub(super) fn are_those_of(&self, other: &Self) -> bool {
        self.0.iter().map(|route| &route.template).eq(other.0.iter().map(|route| &route.template))
    }

    /// Returns whether a template is one of the routes.
    pub(super) fn has(&self, template: &str) -> bool {
        self.0.iter().any(|route| *route.template == *template)
    }

    /// Returns whether some route has not matched.
    pub(super) fn is_any_unmatched(&self) -> bool {
        self.unmatched().next().is_some()
    }

    /// Logs a route that none of the watched requests matched: one that a longer template ends with, if there is one.
    pub(super) fn warn_at_the_end(&self, policy: &str, had_route: bool) {
        if let Some((route, matched)) =
            self.unmatched().find_map(|route| Some((&*route.template, &**route.seen_as.get()?)))
        {
            tracing::warn!(
                code = "TG002",
                policy,
                route,
                matched,
                "none of the first 1000 requests matched this route of the policy, and one matched a longer template \
                 that ends with it: if that is the route, inside Router::nest, give the template in \"matched\""
            );
            return;
        }
        let Some(route) = self.unmatched().map(|route| &*route.template).next() else { return };
        if had_route {
            tracing::warn!(
                code = "TG002",
                policy,
                route,
                "none of the first 1000 requests matched this route of the policy: if the route is in use, give its \
                 whole template, with the prefixes of nested routers"
            );
        } else {
            tracing::warn!(
                code = "TG002",
                policy,
                route,
                "none of the first 1000 requests had a route, so this policy never applies: add the layer with \
                 Router::layer, not around the whole router, and within a service that nest_service nests"
            );
        }
    }

    fn unmatched(&self) -> impl Iterator<Item = &Route> {
        self.0.iter().filter(|route| !route.has_matched.load(Relaxed))
    }
}

/// Logs that none of the watched requests had a route, which is the key of a policy.
pub(super) fn warn_of_no_route(policy: &str) {
    tracing::warn!(
        code = "TG002",
        policy,
        "none of the first 1000 requests had a route, which is the key of this policy, so all share one counter: add the \
         layer with Router::layer, not around the whole router, and within a service that nest_service nests"
    );
}

impl Route {
    fn new(template: &str) -> Self {
        let is_static = !template.contains(['{', '}']);
        Self { template: template.into(), is_static, has_matched: AtomicBool::new(false), seen_as: OnceLock::new() }
    }

    fn note(&self, matched: Option<&str>) {
        let Some(matched) = matched else { return };
        if *matched == *self.template {
            self.has_matched.store(true, Relaxed);
        } else if matched.ends_with(&*self.template) {
            self.seen_as.get_or_init(|| matched.into());
        }
    }
}

impl Trap<'_> {
    /// Logs that the route does not match where the layer is.
    pub(super) fn warn(&self, policy: &str) {
        let route = self.route;
        if let Some(matched) = self.matched.filter(|matched| !matched.ends_with(route)) {
            tracing::warn!(
                code = "TG002",
                policy,
                route,
                matched,
                "this policy is for a path, which is no route here: give the template that matches it, in \"matched\"; \
                 to limit this path alone, use when(...) instead"
            );
        } else if let Some(matched) = self.matched {
            tracing::warn!(
                code = "TG002",
                policy,
                route,
                matched,
                "this policy is for a route that does not match here: inside Router::nest a template has the prefix, \
                 so give the one in \"matched\""
            );
        } else {
            tracing::warn!(
                code = "TG002",
                policy,
                route,
                "no route has matched where this layer is, so this policy never applies: add the layer with \
                 Router::layer, not around the whole router, and within a service that nest_service nests"
            );
        }
    }
}
