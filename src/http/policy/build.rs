//! The options of a policy, set one by one.

use std::sync::Arc;

use http::Method;
use http::request::Parts;

use super::{AccessList, Count, Options, Policy};
use crate::http::key::{KeyExtractor, MissingKey};
use crate::limiter::{Share, TierLookup};
use crate::{Error, Quota};

impl Policy {
    /// Sets who is counted.
    pub fn key(self, key: impl KeyExtractor) -> Self {
        Self { key: Arc::new(key), ..self }.with(|options| options.by_client = false)
    }

    /// Counts by the address by which a layer knows clients, whatever that will be.
    #[cfg(feature = "axum")]
    pub(crate) fn by_client(self) -> Self {
        self.with(|options| options.by_client = true)
    }

    /// The policy in a layer that knows clients by this key.
    pub(crate) fn with_client(self, client: &Arc<dyn KeyExtractor>) -> Self {
        if self.options.by_client { Self { key: Arc::clone(client), ..self } } else { self }
    }

    /// Sets what happens to requests without a [certain](MissingKey) key. By default IP keys share one counter, and
    /// policies with another key are skipped.
    pub fn missing_key(self, rule: MissingKey) -> Self {
        self.with(|options| options.missing_key = Some(rule))
    }

    /// Sets how many units a request takes, instead of 1.
    pub fn cost(self, units: u64) -> Self {
        let rule = self.rule.cost(units);
        Self { rule, ..self }.with(|options| options.cost_by = None)
    }

    /// Lets a closure say how many units a request takes, from its head. A cost of 0 only looks; one
    /// above the capacity can never be admitted.
    pub fn cost_by(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        let rule = self.rule.cost(1);
        Self { rule, ..self }.with(|options| options.cost_by = Some(Arc::new(cost)))
    }

    /// Lets the handler say what a request really cost, with [`RealCost`](crate::RealCost) or
    /// [`Handle`](crate::Handle): what was taken before the call is an estimate, and the difference
    /// is charged or refunded.
    pub fn metered(self) -> Self {
        self.settled(|options| options.metered = true)
    }

    /// Sets which responses count; what does not is given back.
    pub fn count(self, count: Count) -> Self {
        self.settled(|options| options.count = Some(count))
    }

    /// Gives back what a request took if its client goes away before there is a response. By default
    /// it is kept, as the work may be done.
    pub fn refund_dropped(self) -> Self {
        self.settled(|options| options.refund_dropped = true)
    }

    /// Applies to requests with these methods only. A list with GET covers HEAD, too: axum's handlers of
    /// GET answer both.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|options| options.scope.methods = Some(methods.into_iter().collect()))
    }

    /// Applies to these routes only, given as templates of axum 0.8, such as `/users/{id}`.
    ///
    /// A layer is not built with a template that can never match: one of older versions (`/users/:id`),
    /// with braces that are open, or without a leading slash.
    #[cfg(feature = "axum")]
    pub fn routes<'a>(self, templates: impl IntoIterator<Item = &'a str>) -> Self {
        self.with(|options| options.scope.routes = Some(templates.into_iter().map(Box::from).collect()))
    }

    /// Applies only where a closure over the head of the request says so.
    pub fn when(self, applies: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|options| options.scope.when = Some(Arc::new(applies)))
    }

    /// Counts CORS preflights too.
    ///
    /// By default those that the policy applies to are not counted. All else is as for other requests, as
    /// anybody can send what looks like a preflight: lists refuse those they [`deny`](Self::deny), an
    /// extractor may reject them, and [`MissingKey::Deny`] refuses those without a key.
    pub fn with_preflights(self) -> Self {
        self.with(|options| options.scope.preflights = true)
    }

    /// Lets CORS preflights pass that have no key, or whose key the extractor rejects.
    ///
    /// Browsers send them without credentials. So a policy that needs a key refuses them, unless this is
    /// set or, better, a layer for CORS outside of this one answers them: what looks like a preflight
    /// may be none, and then it reaches the inner service without a key.
    pub fn preflights_without_key(self) -> Self {
        self.with(|options| options.scope.keyless_preflights = true)
    }

    /// Never limits the clients of a list. Where it and [`deny`](Self::deny) name a client, it is
    /// refused. A client of an allowed address needs no key.
    ///
    /// Of a joined key any part may have the value of an entry: [`AccessList`] has the rules. A layer is
    /// not built with an entry that no request can match.
    pub fn allow(self, clients: AccessList) -> Self {
        self.with(|options| options.allow = Some(Arc::new(clients)))
    }

    /// Refuses every request of the clients of a list with 403, as [`allow`](Self::allow) finds them, where
    /// the policy applies: also those it does not count.
    ///
    /// A request whose address is not known is refused if the list has addresses, as it may come from one
    /// of them, unless the list [serves unknown addresses](AccessList::serve_unknown_addresses). A request
    /// without a key is refused by its address, by the parts of a joined key that it has, or if
    /// [`missing_key`](Self::missing_key) says so. One whose key is
    /// [ambiguous](crate::key::Extracted::Ambiguous) is refused if any of the values it may have is on the
    /// list; and with 400 if the extractor does not [offer](KeyExtractor::raw_values) each of them, and the
    /// list has values.
    pub fn deny(self, clients: AccessList) -> Self {
        self.with(|options| options.deny = Some(Arc::new(clients)))
    }

    /// Lets a closure over the head of the request choose the quota; `None` is the policy's own.
    ///
    /// A client whose limit or burst changes keeps the units used; a quota with another window or
    /// algorithm starts with fresh state.
    pub fn tier(self, quota: impl Fn(&Parts) -> Option<Quota> + Send + Sync + 'static) -> Self {
        let rule = self.rule.without_tiers();
        Self { rule, ..self }.with(|options| options.tier = Some(Arc::new(quota)))
    }

    /// Looks the quota up by the key, or by the value it was made of, as [`tier`](Self::tier) does by the
    /// request.
    pub fn tier_lookup(self, lookup: TierLookup) -> Self {
        let rule = self.rule.tier_lookup(lookup);
        Self { rule, ..self }.with(|options| options.tier = None)
    }

    /// Keeps a fraction of the capacity for critical requests: others are refused while no more
    /// than that is left.
    ///
    /// # Panics
    ///
    /// If `fraction` is not above 0 and below 1.
    pub fn reserve(self, fraction: f64, critical: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.try_reserve(fraction, critical).expect("a reserve is a fraction above 0 and below 1")
    }

    /// As [`reserve`](Self::reserve).
    ///
    /// # Errors
    ///
    /// If `fraction` is not above 0 and below 1.
    pub fn try_reserve(
        self,
        fraction: f64,
        critical: impl Fn(&Parts) -> bool + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let rule = self.rule.reserving(Share::new(fraction)?);
        Ok(Self { rule, ..self }.with(|options| options.critical = Some(Arc::new(critical))))
    }

    /// Decides, counts and logs, and never refuses nor shows: to try a policy on real traffic.
    pub fn shadow(self) -> Self {
        Self { rule: self.rule.shadow(), ..self }
    }

    /// Keeps this policy out of all headers and bodies.
    pub fn unadvertised(self) -> Self {
        self.with(|options| options.advertised = false)
    }

    fn with(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(&mut self.options);
        self
    }

    /// With an option by which what becomes of a request settles what it took.
    fn settled(self, set: impl FnOnce(&mut Options)) -> Self {
        let rule = self.rule.settled_by_outcome();
        Self { rule, ..self }.with(set)
    }
}
