//! Policies: a rule, and the HTTP requests that it applies to.
//!
//! A policy adds to a [`Rule`] everything that needs a request: the key's extractor, which requests it applies to, what
//! they cost, which quota they have, and which clients are allowed or denied. Nothing here calls a store, and a rule
//! does not depend on HTTP.

mod access;
mod build;
mod count;
mod diagnostics;
mod scope;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;

pub use self::access::AccessList;
pub use self::count::Count;
pub(crate) use self::count::{AwaitsRefusals, DeniedMark};
use self::diagnostics::PolicyDiagnostics;
use self::scope::Scope;
pub(crate) use self::scope::{Predicate, Terms};
use crate::core::{Error, Key, Mode, Quota, Settles};
use crate::http::MissingKey;
use crate::http::key;
#[cfg(feature = "axum")]
use crate::http::key::ClientIp;
use crate::http::key::{KeyExtractor, KeyInfo};
use crate::limiter::{Rule, RuleKeys};

/// A named limit: a quota, and the key by which requests are counted against it.
///
/// By default a policy counts all requests together, at 1 unit each. Policies with the same name share their counters
/// if the store, the key, the algorithm and the window are the same.
///
/// An option that is set again replaces its earlier value. This includes [`routes`](Self::routes),
/// [`methods`](Self::methods) and [`when`](Self::when). The exceptions are [`allow`](Self::allow) and
/// [`deny`](Self::deny), because each call adds entries.
///
/// # Examples
///
/// This policy allows five failed logins in 15 minutes for each account, from any client. A login has failed if the
/// response is a 4xx or 5xx:
///
/// ```
/// use std::time::Duration;
/// use tollgate::policy::Count;
/// use tollgate::{Policy, Quota, key};
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
    rule: Rule,
    /// `None` counts all requests together.
    key: Option<Arc<dyn KeyExtractor>>,
    extractor: Arc<dyn KeyExtractor>,
    info: KeyInfo,
    /// Client of address lists, with the settings of the layer's client. `None` before the policy is added to a
    /// layer, and without the feature `axum`.
    client: Option<Arc<dyn KeyExtractor>>,
    options: Options,
    warned: Arc<PolicyDiagnostics>,
}

impl Policy {
    /// Creates a policy that counts all requests together, until a [`key`](Self::key) is set.
    ///
    /// Choose the key first: without a key, a single client can use up the limit of all clients. A policy by address
    /// ([`key::client_ip`]) counts every request. A policy by a value that clients send ([`key::header`],
    /// [`key::bearer`], ...) counts only requests with this value, unless [`missing_key`](Self::missing_key) says
    /// otherwise. If one counter for all requests is intended, use [`key::global`].
    /// [`LiveLayer::explain`](crate::LiveLayer::explain) shows which key a request has.
    ///
    /// The name is part of the policy's counters, headers, logs and metrics.
    ///
    /// # Panics
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`. Use [`try_new`](Self::try_new) for names from files and
    /// users.
    #[track_caller]
    pub fn new(name: &str, quota: Quota) -> Self {
        Rule::new(name, quota).into()
    }

    /// Fallible version of [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// If `name` does not match `[A-Za-z][A-Za-z0-9._-]{0,63}`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// assert!(Policy::try_new("login", Quota::per_minute(5)).is_ok());
    /// assert!(Policy::try_new("log in", Quota::per_minute(5)).is_err());
    /// ```
    pub fn try_new(name: &str, quota: Quota) -> Result<Self, Error> {
        Rule::try_new(name, quota).map(Self::from)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.rule.name().as_str()
    }

    /// Returns the quota of requests for which no [`tier`](Self::tier) or lookup chooses another quota.
    pub fn quota(&self) -> &Quota {
        self.rule.quota()
    }

    /// Returns the policy's rule, for a [`Limiter`](crate::Limiter).
    ///
    /// The rule has the name, the quota, the cost and the ban, and does not depend on requests. A tool for
    /// [operators](crate::Limiter#operators) uses the rule to see the counters of a service.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Returns the key of requests with this value, for operations on the counters of one client.
    ///
    /// The value is the address, the header or another value that the policy's [key](Self::key) extracts. Cookies,
    /// users, query parameters and route parameters are decoded.
    ///
    /// The key of a [`client_ip`](key::client_ip) has the IPv6 prefix that is set on the `client_ip`. If the layer sets
    /// the prefix, call this method on the [policy of the layer](crate::LiveLayer::find_policy).
    ///
    /// # Errors
    ///
    /// If no request has such a key, if the key comes from a closure, or if the key is joined. For a closure, create
    /// the key with [`Key::new`], in the same way as the closure. For a joined key, use
    /// [`key_of_parts`](Self::key_of_parts).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tollgate::Error> {
    /// let policy = Policy::new("api", Quota::per_hour(100)).key(key::header("x-api-key"));
    /// let ada = policy.key_of("ada's key")?;
    /// let layer = RateLimitLayer::new(MemoryStore::new(), policy).live();
    /// assert!(layer.limiter().check_n(&ada, 30).await?.is_allowed());
    /// assert_eq!(layer.limiter().reset(&ada).await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn key_of(&self, value: impl AsRef<[u8]>) -> Result<Key, Error> {
        key::key_of(self.extractor(), &[value])
    }

    /// Returns the key of requests with these values, one for each part of a joined key, in the order of the
    /// [tuple](KeyExtractor).
    ///
    /// # Errors
    ///
    /// If no request has such a key, if a part comes from a closure, or if the number of values is not the number of
    /// parts.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{self, KeyExtractor};
    /// use tollgate::{Policy, Quota};
    ///
    /// let policy = Policy::new("api", Quota::per_hour(100)).key((key::header("x-tenant").plain(), key::method()));
    /// assert_eq!(policy.key_of_parts(["acme", "GET"])?.as_str(), "header x-tenant+method:acme|GET");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn key_of_parts(&self, values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Key, Error> {
        let values: Vec<_> = values.into_iter().collect();
        key::key_of(self.extractor(), &values)
    }

    /// Interns the policy, because all threads of a layer share it.
    pub(crate) fn interned(self) -> Self {
        Self { rule: self.rule.interned(), ..self }
    }

    pub(crate) fn extractor(&self) -> &dyn KeyExtractor {
        &*self.extractor
    }

    pub(crate) fn info(&self) -> &KeyInfo {
        &self.info
    }

    pub(crate) fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.extractor.address(parts).or_else(|| self.client.as_ref()?.address(parts))
    }

    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    pub(crate) fn rule_for_missing_key(&self) -> MissingKey {
        self.options.missing_key.unwrap_or(self.info.missing_key)
    }

    pub(crate) fn skips_on_purpose(&self) -> bool {
        self.options.missing_key == Some(MissingKey::Skip)
    }

    pub(crate) fn denies_values(&self) -> bool {
        self.options.deny.as_ref().is_some_and(|list| list.has_values())
    }

    pub(crate) fn refuses_by_key(&self, terms: Terms) -> bool {
        self.denies_values() || (terms.keyed && self.rule_for_missing_key() == MissingKey::Deny)
    }

    /// Returns the units that a request takes. `Err` is the cost to charge if the cost is ambiguous.
    pub(crate) fn cost_of(&self, parts: &Parts) -> Result<u64, u64> {
        match (self.options.unit, &self.options.cost_by) {
            // The policy counts other units than requests.
            (Some(_), _) => Ok(0),
            (None, Some(cost)) => cost(parts),
            (None, None) => Ok(self.rule.units()),
        }
    }

    pub(crate) fn tier_of(&self, parts: &Parts) -> Option<Quota> {
        self.options.tier.as_ref().and_then(|tier| tier(parts))
    }

    pub(crate) fn is_critical(&self, parts: &Parts) -> bool {
        self.options.critical.as_ref().is_none_or(|is_critical| is_critical(parts))
    }

    pub(crate) fn check_kind(&self, key: &Key) -> Result<(), Error> {
        match self.info.kind.as_deref() {
            Some(kind) if kind != "global" && kind != key.kind() => Err(Error::invalid(format!(
                "policy {:?} has keys of kind {kind:?}, and a key of kind {:?} was given",
                self.name(),
                key.kind()
            ))),
            _ => Ok(()),
        }
    }

    pub(crate) fn rule_keys(&self) -> RuleKeys {
        RuleKeys::new(self.info.kind.clone().map(Into::into), !self.options.scope.is_all())
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn awaits_refusals(&self) -> bool {
        let Options { count, bans_on, .. } = &self.options;
        [count, bans_on].into_iter().flatten().any(Count::awaits_refusals)
    }

    /// Returns `true` if no units, slots or strikes depend on the response. A delayed request can still have something
    /// to settle.
    pub(crate) fn settles_nothing(&self) -> bool {
        let Options { bans_on, tier, .. } = &self.options;
        // A tier may have a quota of any kind.
        let one_quota = tier.is_none() && self.rule.tiers().is_none();
        one_quota && bans_on.is_none() && self.rule.settles_by(self.quota()) == Settles::AsTaken
    }

    pub(crate) fn is_advertised(&self) -> bool {
        self.options.advertised
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.options.advertised && self.rule.mode() == Mode::Enforce
    }

    /// Returns `true` if neither key nor quota depends on what clients send.
    pub(crate) fn is_unforgeable(&self) -> bool {
        self.info.unforgeable && self.options.tier.is_none()
    }
}

type OfRequest<T> = dyn Fn(&Parts) -> T + Send + Sync;

#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Options {
    /// Client of address lists, if the key has no address. The layer's client fills open settings.
    #[cfg(feature = "axum")]
    client: ClientIp,
    /// `None` is the extractor's own rule.
    missing_key: Option<MissingKey>,
    /// `Err` is the cost to charge if the cost is ambiguous.
    pub(crate) cost_by: Option<Arc<OfRequest<Result<u64, u64>>>>,
    advertised: bool,
    pub(crate) metered: bool,
    pub(crate) refund_dropped: bool,
    /// Unit that the policy counts, if it does not count requests. A request then takes no units.
    pub(crate) unit: Option<&'static str>,
    pub(crate) scope: Scope,
    /// Responses that count. If `None`, all responses count.
    pub(crate) count: Option<Count>,
    /// Responses that strike. If `None`, denials strike.
    pub(crate) bans_on: Option<Count>,
    /// Quota by the head of a request. If the closure returns `None`, the policy's own quota applies.
    tier: Option<Arc<OfRequest<Option<Quota>>>>,
    /// Requests that may use the rule's reserve. If `None`, all requests may use it.
    critical: Option<Arc<Predicate>>,
    pub(crate) allow: Option<Arc<AccessList>>,
    pub(crate) deny: Option<Arc<AccessList>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            #[cfg(feature = "axum")]
            client: key::client_ip(),
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

/// Creates a policy that counts all requests together until a [`key`](Policy::key) is set.
impl From<Rule> for Policy {
    fn from(rule: Rule) -> Self {
        Self {
            rule,
            key: None,
            extractor: Arc::new(key::global()),
            info: key::global().info(),
            client: None,
            options: Options::default(),
            warned: Arc::default(),
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("name", &self.name()).field("quota", self.quota()).finish_non_exhaustive()
    }
}
