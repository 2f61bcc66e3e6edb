//! A named rule: a quota, a key, and their options.

mod access;
mod address;
mod count;
mod reserve;
mod scope;
mod tier;

use std::fmt;
use std::sync::Arc;

use http::Method;
use http::request::Parts;

pub use self::access::AccessList;
pub(crate) use self::access::advice;
pub use self::count::Count;
pub(crate) use self::reserve::Reserve;
#[cfg(all(feature = "axum", feature = "config"))]
pub(crate) use self::scope::check_route;
pub(crate) use self::scope::{Predicate, Scope, Terms};
pub use self::tier::TierLookup;
pub(crate) use self::tier::Tiers;
use crate::core::{Mode, Requirement, Settles};
use crate::http::key::{self, KeyExtractor, ListEntry, MissingKey};
use crate::metrics::Refusals;
use crate::{Error, PolicyName, Quota};

/// A named limit: how much, counted by whom.
///
/// # Examples
///
/// Five failed logins a quarter of an hour for each account, whoever tries; the handler's 401 makes
/// the difference:
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Count, Policy, Quota, key};
///
/// let policy = Policy::new("login", Quota::fixed_window(5, Duration::from_secs(900)))
///     .key(key::header("x-account"))
///     .methods([http::Method::POST])
///     .count(Count::failures());
/// assert_eq!(policy.name(), "login");
/// ```
#[derive(Clone)]
#[must_use]
pub struct Policy {
    name: PolicyName,
    quota: Quota,
    key: Arc<dyn KeyExtractor>,
    options: Options,
    refusals: Refusals,
}

/// All that has a default.
#[derive(Clone)]
pub(crate) struct Options {
    missing_key: Option<MissingKey>,
    pub(crate) cost: Cost,
    pub(crate) mode: Mode,
    pub(crate) advertised: bool,
    pub(crate) metered: bool,
    pub(crate) refund_dropped: bool,
    pub(crate) scope: Scope,
    pub(crate) count: Option<Count>,
    pub(crate) tiers: Option<Tiers>,
    pub(crate) reserve: Option<Reserve>,
    pub(crate) allow: Option<Arc<AccessList>>,
    pub(crate) deny: Option<Arc<AccessList>>,
}

/// What a request takes before it is served.
#[derive(Clone)]
pub(crate) enum Cost {
    Fixed(u64),
    By(Arc<dyn Fn(&Parts) -> u64 + Send + Sync>),
}

impl Policy {
    /// A policy that counts all requests together, until it is given a [`key`](Self::key).
    ///
    /// # Panics
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`.
    pub fn new(name: &str, quota: Quota) -> Self {
        Self::try_new(name, quota).expect("a policy's name is a letter, then up to 63 letters, digits, '.', '_' or '-'")
    }

    /// As [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`.
    pub fn try_new(name: &str, quota: Quota) -> Result<Self, Error> {
        let name = name.try_into()?;
        let options = Options {
            missing_key: None,
            cost: Cost::Fixed(1),
            mode: Mode::Enforce,
            advertised: true,
            metered: false,
            refund_dropped: false,
            scope: Scope::default(),
            count: None,
            tiers: None,
            reserve: None,
            allow: None,
            deny: None,
        };
        let (key, refusals) = (Arc::new(key::global()), Refusals::default());
        Ok(Self { name, quota, key, options, refusals })
    }

    /// Sets who is counted.
    pub fn key(self, key: impl KeyExtractor) -> Self {
        Self { key: Arc::new(key), ..self }
    }

    /// Sets what happens to requests without a [certain](MissingKey) key. By default IP keys share one counter, and
    /// policies with another key are skipped.
    pub fn missing_key(self, rule: MissingKey) -> Self {
        self.with(|options| options.missing_key = Some(rule))
    }

    /// Sets how many units a request takes, instead of 1.
    pub fn cost(self, units: u64) -> Self {
        self.with(|options| options.cost = Cost::Fixed(units))
    }

    /// Lets a closure say how many units a request takes, from its head. A cost of 0 only looks; one
    /// above the capacity can never be admitted.
    pub fn cost_by(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|options| options.cost = Cost::By(Arc::new(cost)))
    }

    /// Lets the handler say what a request really cost, with [`RealCost`](crate::RealCost) or
    /// [`Handle`](crate::Handle): what was taken before the call is an estimate, and the difference
    /// is charged or refunded.
    pub fn metered(self) -> Self {
        self.with(|options| options.metered = true)
    }

    /// Sets which responses count; what does not is given back.
    pub fn count(self, count: Count) -> Self {
        self.with(|options| options.count = Some(count))
    }

    /// Gives back what a request took if its client goes away before there is a response. By default
    /// it is kept, as the work may be done.
    pub fn refund_dropped(self) -> Self {
        self.with(|options| options.refund_dropped = true)
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
        self.with(|options| options.tiers = Some(Tiers::By(Arc::new(quota))))
    }

    /// Looks the quota up by the key, or by the value it was made of, as [`tier`](Self::tier) does by the
    /// request.
    pub fn tier_lookup(self, lookup: TierLookup) -> Self {
        self.with(|options| options.tiers = Some(Tiers::Lookup(lookup)))
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
        let reserve = Reserve::new(fraction, Arc::new(critical))?;
        Ok(self.with(|options| options.reserve = Some(reserve)))
    }

    /// Decides, counts and logs, and never refuses nor shows: to try a policy on real traffic.
    pub fn shadow(self) -> Self {
        self.with(|options| options.mode = Mode::Shadow)
    }

    /// Keeps this policy out of all headers and bodies.
    pub fn unadvertised(self) -> Self {
        self.with(|options| options.advertised = false)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The quota.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    pub(crate) fn shared_name(&self) -> &PolicyName {
        &self.name
    }

    pub(crate) fn extractor(&self) -> &dyn KeyExtractor {
        &*self.key
    }

    pub(crate) fn rule_for_missing_key(&self) -> MissingKey {
        self.options.missing_key.unwrap_or_else(|| self.key.missing_key())
    }

    /// Whether keys of some values are refused.
    pub(crate) fn denies_values(&self) -> bool {
        self.options.deny.as_ref().is_some_and(|list| list.has_values())
    }

    /// Whether it may refuse a request of these terms for its key, or for having none.
    pub(crate) fn refuses_by_key(&self, terms: Terms) -> bool {
        self.denies_values() || (terms.keyed && self.rule_for_missing_key() == MissingKey::Deny)
    }

    /// Refuses routes and lists that can match nothing, where clients without another address have that
    /// of `client`.
    pub(crate) fn check_matches(&self, client: &dyn KeyExtractor) -> Result<(), Error> {
        self.options.scope.check_routes().map_err(|error| {
            let text = format!("policy {:?}: {error}", self.name());
            Error::invalid(text)
        })?;
        self.check_lists(client)
    }

    fn check_lists(&self, client: &dyn KeyExtractor) -> Result<(), Error> {
        let can_match = |entry: ListEntry<'_>| self.key.can_match(entry) || is_address_of(client, entry);
        for (what, list) in [("allow", &self.options.allow), ("deny", &self.options.deny)] {
            let Some((place, is_address)) = list.as_ref().and_then(|list| list.idle(can_match)) else { continue };
            return Err(Error::invalid(format!(
                "entry {place} of the {what} list of policy {:?} can never match: {}",
                self.name(),
                advice(is_address)
            )));
        }
        Ok(())
    }

    /// What it asks of a store.
    pub(crate) fn requirement(&self) -> Requirement<'_> {
        let settles = self.options.settles();
        Requirement { settles, reserves: self.options.reserve.is_some(), ..Requirement::new(&self.name, &self.quota) }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Whether clients are told of this policy.
    pub(crate) fn is_shown(&self) -> bool {
        self.options.advertised && self.options.mode == Mode::Enforce
    }

    /// Whether what it tells a client is by what the connection or the server says of that client.
    pub(crate) fn is_proven(&self) -> bool {
        self.key.is_proven() && !matches!(self.options.tiers, Some(Tiers::By(_)))
    }

    fn with(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(&mut self.options);
        self
    }
}

impl Options {
    /// Whether units come back by what becomes of a request: by its response, or by its being dropped.
    pub(crate) fn settles(&self) -> Settles {
        if self.count.is_some() || self.metered || self.refund_dropped { Settles::ByOutcome } else { Settles::AsTaken }
    }
}

impl Cost {
    pub(crate) fn of(&self, parts: &Parts) -> u64 {
        match self {
            Cost::Fixed(units) => *units,
            Cost::By(cost) => cost(parts),
        }
    }

    /// The cost of what is no request.
    pub(crate) fn fixed(&self) -> u64 {
        match self {
            Cost::Fixed(units) => *units,
            Cost::By(_) => 1,
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("name", &self.name).field("quota", &self.quota).finish_non_exhaustive()
    }
}

fn is_address_of(client: &dyn KeyExtractor, entry: ListEntry<'_>) -> bool {
    matches!(entry, ListEntry::Net(_)) && client.can_match(entry)
}
