use std::sync::Arc;

use http::Method;
use http::request::Parts;

use super::{AccessList, Count, Options, Policy};
use crate::core::error::built;
use crate::core::{Ban, Error, Quota};
use crate::http::MissingKey;
#[cfg(feature = "axum")]
use crate::http::key::{ClientIp, bound};
use crate::http::key::{KeyExtractor, shared};
use crate::limiter::Share;
#[cfg(feature = "lookup")]
use crate::limiter::TierLookup;

impl Policy {
    /// Sets the extractor of the key by which requests are counted, instead of one counter for all.
    ///
    /// By default the policy does not apply to requests without this key, unless the key is an IP key: see
    /// [`missing_key`](Self::missing_key). Pass a closure through [`key::from_fn`](crate::key::from_fn), so that its
    /// argument needs no type.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, Quota, key};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(600)).key(key::header("x-api-key"));
    /// # let _ = policy;
    /// ```
    pub fn key(self, key: impl KeyExtractor) -> Self {
        let key = shared(key);
        let info = key.info();
        Self { extractor: Arc::clone(&key), key: Some(key), info, warned: Arc::default(), ..self }
    }

    /// Fills the settings that the key leaves open from the layer's client. Fails if the client contradicts the key.
    #[cfg(feature = "axum")]
    pub(crate) fn bound_to(mut self, layer: &ClientIp) -> Result<Self, Error> {
        let named = |error: Error| Error::invalid(format!("policy {:?}: {error}", self.rule.name().as_str()));
        if let Some(key) = &self.key {
            self.extractor = bound(key, layer).map_err(named)?;
            self.info = self.extractor.info();
        }
        self.client = Some(shared(self.options.client.bound(layer).map_err(named)?));
        Ok(self)
    }

    /// Sets the client whose address the [`allow`](Self::allow) and [`deny`](Self::deny) lists compare, if the key has
    /// no address.
    ///
    /// By default the lists use the [client](crate::RateLimitLayer::client) of the layer. A policy with its own proxies
    /// is for layers that trust the same proxies, or that do not set a client. Any other layer does not build with this
    /// policy.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::policy::AccessList;
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// # fn main() -> Result<(), tollgate::Error> {
    /// let behind = |proxies| key::client_ip().trusted_proxies([proxies]);
    /// let policy = Policy::new("user", Quota::per_hour(100))
    ///     .key(key::header("x-user"))
    ///     .client(behind("10.0.0.0/8"))
    ///     .deny(AccessList::parse(["203.0.113.0/24"])?);
    /// let layer = |client| RateLimitLayer::composite(MemoryStore::new()).client(client).try_policy(policy.clone());
    /// assert!(layer(key::client_ip()).is_ok());
    /// assert!(layer(behind("192.0.2.0/24")).is_err());
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "axum")]
    pub fn client(self, client: ClientIp) -> Self {
        self.with(|options| options.client = client)
    }

    /// Sets what happens to requests whose key is [missing or ambiguous](MissingKey).
    ///
    /// By default the extractor [decides](crate::key::KeyInfo::missing_key): with an IP key, requests without an
    /// address share one counter. With any other key, the policy does not apply to requests without the key.
    pub fn missing_key(self, rule: MissingKey) -> Self {
        self.with(|options| options.missing_key = Some(rule))
    }

    /// Sets a ban: after a number of denials by this policy within a window, the key is denied for a time.
    ///
    /// A denial by the policy's quota counts, in shadow mode too. A denial by another policy, a list or a missing key
    /// does not count. While a key is banned, all requests that the policy applies to are denied, whatever they cost,
    /// and take nothing. `Retry-After` is the time until the ban ends. Denied requests call the store as often as
    /// without a ban. Replaces [`ban_failures`](Self::ban_failures): a policy has one ban.
    ///
    /// A layer does not build with a ban if clients could get other clients banned
    /// ([`KeyInfo`](crate::key::KeyInfo::unforgeable)). This depends on the key:
    ///
    /// - Allowed: the address of the peer, or of a client behind [trusted
    ///   networks](crate::key::ClientIp::trusted_proxies), and what the server has put into the request's extensions.
    /// - Allowed only if the ban declares that keys are [verified](Ban::of_verified_keys) before the layer: a key that
    ///   clients choose, such as a header or a cookie.
    /// - Allowed: a tuple with a key of the first kind, such as `(key::client_ip(), key::header("x-user"))`, because a
    ///   client can only get itself banned.
    /// - Never allowed: an address of [`trusted_hops`](crate::key::ClientIp::trusted_hops), which any client may send,
    ///   a tuple with such an address, or a key that clients share, such as the route.
    ///
    /// Without the address of the peer, all clients share one counter, which is never banned. Behind a proxy that is
    /// not trusted, all clients have the address of that proxy, and are banned together.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Ban, MemoryStore, Policy, Quota, RateLimitLayer, key};
    ///
    /// const MINUTE: Duration = Duration::from_secs(60);
    /// let login = || Policy::new("login", Quota::per_minute(5));
    /// let layer = |policy| RateLimitLayer::try_new(MemoryStore::new(), policy);
    /// let ban = Ban::new(10, 5 * MINUTE, 15 * MINUTE).backoff(2.0, 1_440 * MINUTE);
    /// assert!(layer(login().key(key::client_ip()).ban(ban)).is_ok());
    /// assert!(layer(login().key((key::client_ip(), key::header("x-user"))).ban(ban)).is_ok());
    ///
    /// // Any client can send the header of another one, unless a gateway verifies it.
    /// assert!(layer(login().key(key::header("x-user")).ban(ban)).is_err());
    /// assert!(layer(login().key(key::header("x-user")).ban(ban.of_verified_keys())).is_ok());
    /// ```
    pub fn ban(self, ban: Ban) -> Self {
        let rule = self.rule.ban(ban);
        Self { rule, ..self }.with(|options| options.bans_on = None)
    }

    /// Sets a ban after a number of failures, or of any responses that `count` counts, instead of denials.
    ///
    /// A failed request strikes when its response is sent, or when a gRPC call has ended. A request whose client
    /// disconnects before that does not strike. The strike is sent to the store in the background, together with other
    /// changes, and no response waits for it. So requests that run at the same time are allowed. [`ban`](Self::ban) has
    /// the rules for keys. This ban replaces a ban that was set with `ban`.
    ///
    /// For logins prefer [`Count::statuses`]. [`Count::failures`] also counts every 5xx of the service, so an outage
    /// would get its clients banned. It does not count [requests that this crate
    /// denies](Count#requests-that-are-denied-inside).
    ///
    /// A ban does not bound how many guesses run at once. A quota that [counts](Self::count) the same responses does
    /// bound them, because it takes the unit of a request before the service is called, and refunds the unit if the
    /// response does not count. So requests in flight alone may use up the quota. A request that is denied then
    /// receives the wait of the quota, although responses may refund units earlier.
    ///
    /// # Examples
    ///
    /// This login allows at most 5 wrong passwords for each address and account in 10 minutes, even if they are tried
    /// in parallel. Then it bans the address and account for 30 minutes. To limit guesses at many accounts, add a
    /// second policy by `client_ip` alone.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::net::SocketAddr;
    /// use std::time::Duration;
    /// use http::{Request, Response, StatusCode};
    /// use tollgate::policy::Count;
    /// use tollgate::{Ban, Key, MemoryStore, Policy, Quota, RateLimitLayer, key};
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// /// A middleware outside has read it from the body: in lower case, if logins ignore case.
    /// #[derive(Clone)]
    /// struct Account(&'static str);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Infallible> {
    /// const MINUTE: Duration = Duration::from_secs(60);
    /// let account = key::extension(|account: &Account| Key::hashed("account", account.0));
    /// let wrong_passwords = Count::statuses([StatusCode::UNAUTHORIZED]);
    /// let login = Policy::new("login", Quota::sliding_log(5, 10 * MINUTE))
    ///     .key((key::client_ip(), account))
    ///     .count(wrong_passwords.clone())
    ///     .ban_failures(Ban::new(5, 10 * MINUTE, 30 * MINUTE), wrong_passwords);
    ///
    /// # let service = service_fn(|_: Request<String>| async {
    /// #     let response = Response::builder().status(StatusCode::UNAUTHORIZED).body(String::new());
    /// #     Ok::<_, Infallible>(response.expect("a status"))
    /// # });
    /// let service = RateLimitLayer::new(MemoryStore::new(), login).layer(service);
    /// for attempt in 1..=6 {
    ///     let mut request = Request::new(String::new());
    ///     request.extensions_mut().insert(Account("ada"));
    ///     // The server does this.
    ///     request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 1], 49_152)));
    ///     let response = service.clone().oneshot(request).await?;
    ///     if attempt <= 5 {
    ///         assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    ///     } else {
    ///         assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    ///         assert_eq!(response.headers()["retry-after"], "1800");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn ban_failures(self, ban: Ban, count: Count) -> Self {
        let rule = self.rule.ban_by_outcome(ban);
        Self { rule, ..self }.with(|options| options.bans_on = Some(count))
    }

    /// Sets how many units a request takes, instead of 1.
    ///
    /// A layer does not build with a cost above the capacity, because no request could ever be allowed. It does not
    /// build with a cost of 0 either, unless the policy is [`metered`](Self::metered), or denies requests by a ban, a
    /// deny list or a missing key. Replaces [`cost_by`](Self::cost_by).
    pub fn cost(self, units: u64) -> Self {
        let rule = self.rule.cost(units);
        Self { rule, ..self }.with(|options| options.cost_by = None)
    }

    /// Sets how many units a request takes, by a closure over its head.
    ///
    /// A cost of 0 takes nothing. A cost above the capacity can never be allowed. Not for a
    /// [long sliding log](Quota::long_sliding_log). Replaces [`cost`](Self::cost).
    ///
    /// If the closure reads a number that the client wrote, never return 0, because a client whose requests cost 0 is
    /// never denied. Return `units.max(1)`, and the largest cost for a value that is not a number.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// // Searches are ten times as expensive.
    /// let policy = Policy::new("api", Quota::per_minute(600))
    ///     .cost_by(|parts| if parts.uri.path() == "/search" { 10 } else { 1 });
    /// # let _ = policy;
    /// ```
    pub fn cost_by(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.cost_if_certain(move |parts| Ok(cost(parts)))
    }

    /// Sets how many units a request takes, by a closure that may find several costs, such as one in each line of a
    /// header.
    ///
    /// If the closure cannot know which cost the application uses, it returns an error with the largest cost. Then the
    /// request is treated as if its key were [ambiguous](crate::key::Extracted::Ambiguous):
    /// [`missing_key`](Self::missing_key) decides. A policy with a ban denies the request with 400. Replaces
    /// [`cost`](Self::cost).
    ///
    /// # Examples
    ///
    /// ```
    /// use http::HeaderValue;
    /// use tollgate::{Policy, Quota};
    ///
    /// let number = |line: &HeaderValue| line.to_str().ok()?.parse().ok();
    /// let policy = Policy::new("api", Quota::per_minute(600)).cost_if_certain(move |parts| {
    ///     // Text that is no number costs more than any quota holds.
    ///     let costs = parts.headers.get_all("x-cost").iter().map(|line| number(line).unwrap_or(u64::MAX).max(1));
    ///     let (least, most) = costs.fold((u64::MAX, 1), |(least, most), cost| (least.min(cost), most.max(cost)));
    ///     if least >= most { Ok(most) } else { Err(most) }
    /// });
    /// # let _ = policy;
    /// ```
    pub fn cost_if_certain(self, cost: impl Fn(&Parts) -> Result<u64, u64> + Send + Sync + 'static) -> Self {
        let rule = self.rule.cost(1);
        Self { rule, ..self }.with(|options| options.cost_by = Some(Arc::new(cost)))
    }

    /// Settles each request by its real cost.
    ///
    /// The handler reports the real cost by [`ActualCost`](crate::response::ActualCost) or
    /// [`RateLimitHandle`](crate::RateLimitHandle). The units that are taken before the inner service is called are an
    /// estimate. The difference is charged or refunded.
    pub fn metered(self) -> Self {
        self.settled(|options| options.metered = true)
    }

    /// Sets which responses count. The units of other responses are refunded. By default all count.
    pub fn count(self, count: Count) -> Self {
        self.settled(|options| options.count = Some(count))
    }

    /// Refunds the units of a request whose client disconnects before there is a response.
    ///
    /// By default they stay taken, because the work may have been done.
    pub fn refund_dropped(self) -> Self {
        self.settled(|options| options.refund_dropped = true)
    }

    /// Applies the policy only to requests with these methods, instead of all.
    ///
    /// GET includes HEAD, because axum's handlers of GET respond to both. A layer does not build with an empty list of
    /// methods, or with a standard method that is not in upper case. Replaces the methods that were set before.
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|options| options.scope.methods = Some(methods.into_iter().collect()))
    }

    /// Applies the policy only to these routes, given as templates of axum 0.8, such as `/users/{id}`.
    ///
    /// Around a tonic server no route matches: use [`when`](Self::when) with the path of the method.
    ///
    /// A layer does not build with a template that can never match: one of an older version (`/users/:id`), with an
    /// unclosed brace, or without a leading slash. Replaces the routes that were set before.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
    ///
    /// let users = |route| Policy::new("users", Quota::per_minute(60)).routes([route]);
    /// assert!(RateLimitLayer::try_new(MemoryStore::new(), users("/users/{id}")).is_ok());
    /// assert!(RateLimitLayer::try_new(MemoryStore::new(), users("/users/:id")).is_err());
    /// ```
    #[cfg(feature = "axum")]
    pub fn routes(self, templates: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let templates = templates.into_iter().map(|template| template.as_ref().into()).collect();
        self.with(|options| options.scope.routes = Some(templates))
    }

    /// Applies the policy only to requests for whose head a closure returns `true`.
    ///
    /// [`methods`](Self::methods) and routes still have to match. Replaces the closure that was set before.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// let policy = Policy::new("exports", Quota::per_hour(10))
    ///     .when(|parts| parts.uri.query().is_some_and(|query| query.contains("format=csv")));
    /// # let _ = policy;
    /// ```
    pub fn when(self, applies: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|options| options.scope.when = Some(Arc::new(applies)))
    }

    /// Lets CORS preflights pass even if they have no key, or if the extractor rejects them.
    ///
    /// Browsers send preflights without credentials, so a policy that requires a key denies them. It is better to place
    /// a CORS layer outside of this layer, and let the CORS layer respond to preflights. With this option, any request
    /// in the form of a preflight reaches the inner service without a key.
    pub fn preflights_without_key(self) -> Self {
        self.with(|options| options.scope.keyless_preflights = true)
    }

    /// Sets the allow list, whose clients are never limited.
    ///
    /// A client that is also on the [`deny`](Self::deny) list is denied. A client with an allowed address needs no key.
    /// An entry matches a joined key if any part has the value of the entry. [`AccessList`] has the rules. A layer does
    /// not build with an entry that no request can match. A second list adds its entries to the first.
    pub fn allow(self, clients: AccessList) -> Self {
        self.with(|options| options.allow = Some(added(options.allow.take(), clients)))
    }

    /// Sets the deny list, whose clients are denied with 403 wherever the policy applies.
    ///
    /// A second list adds its entries to the first. Clients match in the same way as for [`allow`](Self::allow). They
    /// are denied even if they are on the allow list, too.
    ///
    /// - If the list has addresses, a request without a known address is denied, because it may come from one of them.
    ///   This does not apply if the list [serves unknown addresses](AccessList::serve_unknown_addresses).
    /// - A request without a key can be denied by its address, by the parts that it has of a joined key, or by the
    ///   [`missing_key`](Self::missing_key) rule.
    /// - If the list has values, a request with an [ambiguous](crate::key::Extracted::Ambiguous) key is denied with
    ///   400, because its client may be on the list.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::policy::AccessList;
    /// use tollgate::{Policy, Quota, key};
    ///
    /// let policy = Policy::new("api", Quota::per_minute(600))
    ///     .key(key::header("x-api-key"))
    ///     .deny(AccessList::default().key("leaked-key"));
    /// # let _ = policy;
    /// ```
    pub fn deny(self, clients: AccessList) -> Self {
        self.with(|options| options.deny = Some(added(options.deny.take(), clients)))
    }

    /// Sets the quota of a request, by a closure over its head. `None` is the policy's own quota.
    ///
    /// A client whose limit or burst changes keeps the units it has used. A quota with another window or algorithm
    /// starts with fresh state. Replaces [`tier_lookup`](Self::tier_lookup).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, Quota, key};
    ///
    /// // A layer for authentication has inserted the plan.
    /// #[derive(Clone)]
    /// struct Pro;
    ///
    /// let policy = Policy::new("api", Quota::per_minute(60))
    ///     .key(key::header("x-api-key"))
    ///     .tier(|parts| parts.extensions.get::<Pro>().map(|_| Quota::per_minute(6_000)));
    /// # let _ = policy;
    /// ```
    pub fn tier(self, quota: impl Fn(&Parts) -> Option<Quota> + Send + Sync + 'static) -> Self {
        let rule = self.rule.without_tiers();
        Self { rule, ..self }.with(|options| options.tier = Some(Arc::new(quota)))
    }

    /// Looks up the quota by the key.
    ///
    /// If the key holds only a hash, the lookup also receives the value that the client sent. If the lookup returns no
    /// quota, the policy's own quota applies. The rules of [`tier`](Self::tier) for changes of a quota apply here too.
    /// Replaces `tier`. [`TierLookup`] has an example.
    #[cfg(feature = "lookup")]
    pub fn tier_lookup(self, lookup: TierLookup) -> Self {
        let rule = self.rule.tier_lookup(lookup);
        Self { rule, ..self }.with(|options| options.tier = None)
    }

    /// Reserves a fraction of the capacity for critical requests.
    ///
    /// Other requests are denied if they would leave less than the reserve.
    ///
    /// The fraction is rounded to a millionth, and the reserved units are rounded up.
    ///
    /// # Panics
    ///
    /// If `fraction` is not above 0 and below 1. Use [`try_reserve`](Self::try_reserve) for values from files and
    /// users.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{Policy, Quota};
    ///
    /// // 20 of 100 requests per second are for payments.
    /// let policy = Policy::new("capacity", Quota::per_second(100))
    ///     .reserve(0.2, |parts| parts.uri.path().starts_with("/payments"));
    /// # let _ = policy;
    /// ```
    #[track_caller]
    pub fn reserve(self, fraction: f64, critical: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        built(self.try_reserve(fraction, critical))
    }

    /// Fallible version of [`reserve`](Self::reserve).
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

    /// Sets shadow mode: the policy decides, counts and logs, but never denies and is not advertised.
    ///
    /// Use it to try a policy on real traffic. Requests that the policy would deny are logged at `info` level, with at
    /// most ten lines in 10 s. The next line has the number of requests that were not logged.
    pub fn shadow(self) -> Self {
        Self { rule: self.rule.shadow(), ..self }
    }

    /// Leaves this policy out of all headers and bodies that clients receive. By default it is advertised.
    pub fn unadvertised(self) -> Self {
        self.with(|options| options.advertised = false)
    }

    pub(crate) fn in_units(self, unit: &'static str) -> Self {
        self.settled(|options| options.unit = Some(unit))
    }

    fn with(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(&mut self.options);
        self
    }

    fn settled(self, set: impl FnOnce(&mut Options)) -> Self {
        let rule = self.rule.settled_by_outcome();
        Self { rule, ..self }.with(set)
    }
}

fn added(list: Option<Arc<AccessList>>, more: AccessList) -> Arc<AccessList> {
    Arc::new(match list {
        Some(list) => Arc::unwrap_or_clone(list).and(more),
        None => more,
    })
}
