//! Warns of a policy that does not do what it seems to: each cause once, with the first request that shows it.
//!
//! Warnings have codes, which docs/troubleshooting.md explains. None has a key, an address or the value of a header, and
//! none changes what is admitted.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use http::HeaderMap;
use http::header::FORWARDED;
use http::request::Parts;

use super::Policy;
use super::scope::is_route;
use crate::http::key::{matched, normal_template, peer};
use crate::limiter::is_first;

/// What was warned of a policy.
#[derive(Debug, Default)]
pub(super) struct Warned {
    key: AtomicBool,
    peer: AtomicBool,
    proxy: AtomicBool,
    route: AtomicBool,
    /// Whether a request had a route where the layer is.
    had_route: AtomicBool,
}

impl Policy {
    /// Returns the policy in place of the one among `before` with its name and kind of key: it repeats no warning.
    pub(crate) fn continuing(self, before: &[Self]) -> Self {
        let is_same = |other: &&Self| other.name() == self.name() && other.info().kind == self.info().kind;
        let warned = before.iter().find(is_same).map(|other| Arc::clone(&other.warned));
        Self { warned: warned.unwrap_or(self.warned), ..self }
    }

    /// Warns that a request lacks the key of this policy, and no policy limits it.
    #[cold]
    pub(crate) fn warn_of_no_key(&self) {
        if !is_first(&self.warned.key) {
            return;
        }
        let policy = self.name();
        if self.info().unforgeable {
            tracing::warn!(
                code = "TG001",
                policy,
                "a request lacks the key of this policy, and no policy limits it: the server sets this key, so put the \
                 layer that sets it, such as authentication, outside of this one; if such requests are meant to pass, \
                 say missing_key(MissingKey::Skip)"
            );
        } else {
            tracing::warn!(
                code = "TG001",
                policy,
                "a request lacks the key of this policy, and no policy limits it: check the name of the key, add a \
                 policy by address, or refuse such requests with missing_key(MissingKey::Deny); if they are meant to \
                 pass, say missing_key(MissingKey::Skip)"
            );
        }
    }

    /// Warns if a request lacks the key as the server does not know the address of its peer.
    #[cold]
    pub(crate) fn warn_of_no_peer(&self, parts: &Parts) {
        let lacks_peer = self.info().needs_peer && peer(parts).is_none() && self.extractor().address(parts).is_none();
        if lacks_peer && is_first(&self.warned.peer) {
            tracing::warn!(
                code = "TG004",
                policy = self.name(),
                "a request has no peer address, so limits by IP address count all such clients together by default: \
                 with axum, serve the app with `into_make_service_with_connect_info::<SocketAddr>()`; with tonic, \
                 enable the feature tonic; with another server, insert the peer's SocketAddr into the extensions of \
                 each request; behind a Unix socket, count by client_ip() with trusted_unix_socket, and have the proxy \
                 name the client; if the request came from the machine itself, as health checks do, nothing is wrong"
            );
        }
    }

    /// Warns if a proxy names the client of a request and is counted in its place, or compared with lists of addresses,
    /// by some of these policies.
    pub(crate) fn warn_of_proxy(policies: &[Self], parts: &Parts) {
        let unwarned = || policies.iter().filter(|policy| !policy.warned.proxy.load(Relaxed));
        if unwarned().next().is_some() && is_forwarded(&parts.headers) {
            unwarned().for_each(|policy| policy.warn_of_peer(parts));
        }
    }

    /// Warns if the peer is the client of a request that a proxy has forwarded.
    fn warn_of_peer(&self, parts: &Parts) {
        let lists = [&self.options.allow, &self.options.deny];
        let has_lists = lists.into_iter().flatten().any(|list| list.has_nets());
        let client = if has_lists { self.address(parts) } else { self.extractor().address(parts) };
        let is_peer = client.is_some() && client == peer(parts).map(|peer| peer.to_canonical());
        if is_peer && is_first(&self.warned.proxy) {
            tracing::warn!(
                code = "TG003",
                policy = self.name(),
                "a refused request has a header in which proxies name the client, and the peer is taken for the client: \
                 it is not trusted, or this header is not the one that is read. If it is your proxy, all its clients \
                 share one counter, and lists see only its address: trust it with trusted_proxies(...) in \
                 RateLimitLayer::client, which is for lists, ip() and each key client_ip(), and have it set the header \
                 that is read there; in a file with trusted_proxies. If clients send the header themselves, nothing is \
                 wrong"
            );
        }
    }

    /// Warns if a route of the policy, which does not apply to a request, is the path of that request. Within
    /// `Router::nest` that may be the route of another one of the policies.
    pub(crate) fn warn_of_other_route(&self, policies: &[Self], parts: &Parts) {
        let Some(routes) = self.options.scope.routes.as_ref().filter(|_| !self.warned.route.load(Relaxed)) else {
            return;
        };
        let (policy, path, matched) = (self.name(), parts.uri.path(), matched(parts));
        if matched.is_some() && !self.warned.had_route.load(Relaxed) {
            self.warned.had_route.store(true, Relaxed);
        }
        let Some(route) = routes.iter().map(|route| normal_template(route)).find(|route| *route == path) else {
            return;
        };
        let mut others = policies.iter().filter_map(|policy| policy.options.scope.routes.as_ref());
        // A path that no route matches, where others do, may be any that clients try.
        let is_unknown = matched.is_none() && self.warned.had_route.load(Relaxed);
        if is_unknown || others.any(|routes| is_route(parts, routes)) || !is_first(&self.warned.route) {
            return;
        }
        if let Some(matched) = matched {
            tracing::warn!(
                code = "TG002",
                policy,
                route,
                matched,
                "this policy is for a route that does not match here: inside Router::nest a template has the prefix, and \
                 a path is not the template of a route with parameters, so give the one in \"matched\"; to limit this \
                 path alone, use when(...) instead"
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

    /// Warns if the first request has no route, where the key of the policy is by the route.
    pub(crate) fn warn_of_no_route(&self, parts: &Parts) {
        if self.warned.had_route.load(Relaxed) {
            return;
        }
        if matched(parts).is_some() {
            self.warned.had_route.store(true, Relaxed);
        } else if is_first(&self.warned.route) {
            tracing::warn!(
                code = "TG002",
                policy = self.name(),
                "a request has no route, which is the key of this policy, and all such requests share one counter: add \
                 the layer with Router::layer, not around the whole router, and within a service that nest_service \
                 nests; if only unknown paths have none, nothing is wrong"
            );
        }
    }
}

/// Whether a request has a header in which proxies name the client.
fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key("x-forwarded-for") || headers.contains_key(FORWARDED)
}
