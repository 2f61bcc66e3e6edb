//! Policies from `[[policy]]` tables. Each step adds some options to the policy. The key is set before the lists, which
//! depend on it.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use http::Method;
use serde::Deserialize;
use tollgate::policy::{AccessList, Algorithm, MissingKey};
use tollgate::{Error, MemoryStore, Policy, Quota, RateLimitLayer};
use toml::Spanned;

use super::ban::{BanTable, in_file};
use super::error::{At, Fault};
use super::headers::{Critical, header_value, only, read_header, units_in};
use super::keys::read_key;
use super::server::Server;
use super::values::{Given, Period, Window, WordOr, choose, read_count, some};

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, under [[policy]]")]
pub(super) struct PolicyTable {
    pub(super) name: Spanned<String>,
    key: Given<WordOr<String>>,
    algorithm: Given<String>,
    limit: Spanned<u64>,
    window: Given<Window>,
    zone: Given<String>,
    anchor: Given<u64>,
    burst: Given<u64>,
    queue: Given<u64>,
    nodelay: Given<u64>,
    slot_ttl: Given<Period>,
    max_hold: Given<Period>,
    cost: Given<Units>,
    min_cost: Given<u64>,
    count: Given<WordOr<u64>>,
    missing_key: Given<String>,
    methods: Given<Vec<Spanned<String>>>,
    routes: Given<Vec<Spanned<String>>>,
    allow: Given<Vec<Spanned<Entry>>>,
    deny: Given<Vec<Spanned<Entry>>>,
    serve_unknown_addresses: Given<bool>,
    reserve: Given<f64>,
    critical: Given<Critical>,
    tiers: Given<BTreeMap<Spanned<String>, Spanned<Units>>>,
    ban: Given<BanTable>,
    advertise: Option<bool>,
    shadow: Given<bool>,
    metered: Given<bool>,
    preflights_without_key: Given<bool>,
    refund_dropped: Given<bool>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number without sign or quotes, or \"header:NAME\"")]
enum Units {
    Fixed(u64),
    Header(String),
}

#[derive(Deserialize)]
struct Entry(Client);

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields, expecting = "expected a string or a table { value = \"a\", key = \"path\" }")]
enum Client {
    Text(String),
    Value { value: String, key: Option<String> },
}

type Switch = fn(Policy) -> Policy;

type Form = (Algorithm, bool);

impl PolicyTable {
    /// Adds options in such an order that a layer would accept the policy after each of them.
    pub(super) fn build(&self, server: &Server) -> Result<Policy, Fault> {
        let mut policy = Policy::try_new(self.name.get_ref(), self.quota(&self.limit)?).at(&self.name)?;
        policy = self.key.add_to(policy, |policy, key| Ok(policy.key(read_key(key, server)?)))?;
        #[cfg(feature = "axum")]
        if self.allow.get().is_some() || self.deny.get().is_some() {
            policy = policy.client(server.client.clone());
        }
        policy = self.with_missing_key(policy)?;
        policy = self.with_tiers(policy)?;
        policy = self.with_reserve(policy)?;
        policy = self.count.add_to(policy, |policy, count| Ok(policy.count(read_count("count", count)?)))?;
        policy = self.methods.add_to(policy, |policy, methods| Ok(policy.methods(read_methods(methods)?)))?;
        self.routes.needs_axum("routes")?;
        #[cfg(feature = "axum")]
        (policy = self.routes.add_to(policy, with_routes)?);
        let has_options = |methods: &Vec<Spanned<String>>| methods.iter().any(|method| method.get_ref() == "OPTIONS");
        let takes_preflights = self.methods.get().is_none_or(has_options);
        let keyless = &self.preflights_without_key;
        keyless.needs("preflights_without_key", takes_preflights || !keyless.is_on(), "\"OPTIONS\" in methods")?;
        let has_units = policy.quota().algorithm() != Algorithm::Concurrency || !self.refund_dropped.is_on();
        let others = "an algorithm other than concurrency, whose slots are always released";
        self.refund_dropped.needs("refund_dropped", has_units, others)?;
        let switches: [(_, Switch); 3] = [
            (&self.shadow, Policy::shadow),
            (&self.metered, Policy::metered),
            (&self.refund_dropped, Policy::refund_dropped),
        ];
        for (switch, add) in switches {
            if switch.is_on() {
                policy = switch.add_to(policy, |policy, _| Ok(add(policy)))?;
            }
        }
        let policy = if self.advertise == Some(false) { policy.unadvertised() } else { policy };
        let policy = self.ban.add_to(policy, |policy, ban| ban.get_ref().add_to(policy)).map_err(in_file)?;
        let policy = self.with_lists(policy)?;
        self.with_cost(policy)
    }

    fn form(&self) -> Result<Form, Fault> {
        let mut forms: Vec<_> =
            Algorithm::ALL.iter().map(|algorithm| (algorithm.as_str(), (*algorithm, false))).collect();
        forms.extend([("gcra", (Algorithm::TokenBucket, false)), ("long_sliding_log", (Algorithm::SlidingLog, true))]);
        Ok(self.algorithm.choose("algorithm", &forms)?.unwrap_or((Algorithm::TokenBucket, false)))
    }

    fn quota(&self, limit: &Spanned<u64>) -> Result<Quota, Fault> {
        let (algorithm, is_long) = self.form()?;
        let make = |limit, window| Quota::try_new(algorithm, limit, window);
        let quota =
            |limit, window| if is_long { Quota::try_long_sliding_log(limit, window) } else { make(limit, window) };
        let is_unit = matches!(self.window.get(), Some(Window::Unit(_)));
        let units = "a window of \"hour\", \"day\", \"week\" or \"month\"";
        self.zone.needs("zone", is_unit, units)?;
        self.anchor.needs("anchor", is_unit, units)?;
        let has_slots = algorithm == Algorithm::Concurrency;
        let quota = match self.window.0.as_ref().map(|window| (window, window.get_ref())) {
            None if has_slots => Quota::try_concurrency(*limit.get_ref()).at(limit)?,
            None => return Err(Fault::new(&self.name, "this policy has no window: add a line window = \"60s\"")),
            Some((window, _)) if has_slots => {
                return Err(Fault::new(window, "a concurrency has a slot_ttl, and no window"));
            }
            Some((window, Window::Length(length))) => {
                // With the smallest limit only the window can be at fault.
                let _ = quota(1, *length).at(window)?;
                quota(*limit.get_ref(), *length).at(limit)?
            }
            Some((window, Window::Unit(unit))) if algorithm == Algorithm::FixedWindow => {
                self.calendar_quota(limit, unit, window)?
            }
            Some((window, Window::Unit(unit))) => {
                let advice = "is for a fixed_window only: use a duration, such as \"1h\" or \"30d\"";
                return Err(Fault::new(window, format!("window {unit:?} {advice}")));
            }
        };
        let quota = self.burst.set(quota, Quota::try_burst)?;
        let quota = self.queue.set(quota, Quota::try_queue)?;
        let quota = self.nodelay.set(quota, Quota::try_nodelay)?;
        let quota = self.slot_ttl.set(quota, |quota, ttl| quota.try_slot_ttl(ttl.0))?;
        self.max_hold.set(quota, |quota, hold| quota.try_max_hold(hold.0))
    }

    #[cfg(feature = "calendar")]
    fn calendar_quota(&self, limit: &Spanned<u64>, unit: &str, window: &Spanned<Window>) -> Result<Quota, Fault> {
        use tollgate::policy::Calendar;
        let make = match unit {
            "hour" => Calendar::hourly,
            "day" => Calendar::daily,
            "week" => Calendar::weekly,
            _ => Calendar::monthly,
        };
        let calendar = match &self.zone.0 {
            Some(zone) => make(zone.get_ref()).at(zone)?,
            None => make("UTC").at(window)?,
        };
        let calendar = self.anchor.set(calendar, |calendar, day| match u8::try_from(day) {
            Ok(day) => calendar.try_anchor(day),
            Err(_) => Err(Error::invalid(format!("anchor {day} is no day of a {unit}: it is too large"))),
        })?;
        Quota::try_calendar_window(*limit.get_ref(), calendar).at(limit)
    }

    #[cfg(not(feature = "calendar"))]
    #[expect(clippy::unused_self, reason = "with the feature it has the zone")]
    fn calendar_quota(&self, _: &Spanned<u64>, unit: &str, window: &Spanned<Window>) -> Result<Quota, Fault> {
        Err(Fault::new(window, format!("window {unit:?} needs the feature calendar: turn it on")))
    }

    fn with_missing_key(&self, policy: Policy) -> Result<Policy, Fault> {
        let rules = [("skip", MissingKey::Skip), ("deny", MissingKey::Deny), ("share", MissingKey::Share)];
        let rule = self.missing_key.choose("missing_key", &rules)?;
        // It is the rule for ambiguous costs, too.
        let is_certain = !matches!(self.cost.get(), Some(Units::Header(_)));
        let is_global = match self.key.get() {
            None => true,
            Some(WordOr::Word(key)) => key == "global",
            Some(WordOr::List(keys)) => matches!(&keys[..], [key] if key.get_ref() == "global"),
        };
        let lacks_none = is_certain && is_global;
        self.missing_key.needs("missing_key", !lacks_none, "a key that requests may lack")?;
        let passes = self.preflights_without_key.is_on();
        let has_effect = !passes || rule == Some(MissingKey::Deny);
        self.preflights_without_key.needs("preflights_without_key", has_effect, "a line missing_key = \"deny\"")?;
        let policy = if passes { policy.preflights_without_key() } else { policy };
        Ok(rule.into_iter().fold(policy, Policy::missing_key))
    }

    fn with_lists(&self, policy: Policy) -> Result<Policy, Fault> {
        let serves = self.serve_unknown_addresses.is_on();
        let policy = with_list(policy, "allow", &self.allow, Policy::allow)?;
        let policy = with_list(policy, "deny", &self.deny, |policy, list| {
            policy.deny(if serves { list.serve_unknown_addresses() } else { list })
        })?;
        let has_address = |list: &Vec<Spanned<Entry>>| list.iter().any(|entry| entry.get_ref().0.is_address());
        let has_effect = !serves || self.deny.get().is_some_and(has_address);
        self.serve_unknown_addresses.needs("serve_unknown_addresses", has_effect, "an address in a list deny")?;
        Ok(policy)
    }

    fn with_cost(&self, policy: Policy) -> Result<Policy, Fault> {
        let is_by_header = matches!(self.cost.get(), Some(Units::Header(_)));
        self.min_cost.needs("min_cost", is_by_header, "a line cost = \"header:NAME\"")?;
        let min = self.least();
        let policy = self.min_cost.set(policy, |policy, min| {
            let message = "is above what the quota holds, so all would be denied: lower it";
            let is_held = min <= policy.quota().capacity();
            if is_held { Ok(policy) } else { Err(Error::invalid(format!("min_cost {min} {message}"))) }
        })?;
        self.cost.add_to(policy, |policy, cost| match cost.get_ref() {
            Units::Fixed(units) => Ok(policy.cost(*units)),
            Units::Header(text) => {
                let header = read_header("cost", text).at(cost)?;
                if self.algorithm.get().is_some_and(|name| name == "long_sliding_log") {
                    let message =
                        "cost by a header is not for long_sliding_log, which few requests would fill: use a number";
                    return Err(Fault::new(cost, message));
                }
                Ok(policy.cost_if_certain(move |parts| units_in(parts, &header, min)))
            }
        })
    }

    fn least(&self) -> u64 {
        match self.cost.get() {
            Some(Units::Fixed(units)) => *units,
            _ => self.min_cost.get().map_or(1, |min| *min),
        }
    }

    fn with_tiers(&self, policy: Policy) -> Result<Policy, Fault> {
        let Some(given) = &self.tiers.0 else { return Ok(policy) };
        let (mut header, mut quotas) = (None, HashMap::new());
        for (name, value) in given.get_ref() {
            match (name.get_ref().as_str(), value.get_ref()) {
                ("by", Units::Header(text)) => header = Some(read_header("tiers by", text).at(value)?),
                ("by", Units::Fixed(_)) => return Err(Fault::new(value, "tiers by is a number: use header:NAME")),
                (tier, Units::Header(_)) => {
                    return Err(Fault::new(value, format!("tier {tier:?} is no limit: use a number without quotes")));
                }
                (tier, Units::Fixed(limit)) => {
                    let tier_name = header_value("tiers", tier).at(name)?.as_bytes().to_owned();
                    let quota = self.quota(&Spanned::new(value.span(), *limit));
                    let quota = quota.map_err(|fault| fault.in_tier(tier, value))?;
                    let (capacity, least) = (quota.capacity(), self.least());
                    if least > capacity {
                        let message = format!(
                            "tier {tier:?}: a request costs at least {least} and the quota holds {capacity}, so all would \
                             be denied: raise it, or lower the cost"
                        );
                        return Err(Fault::new(value, message));
                    }
                    quotas.insert(tier_name, quota);
                }
            }
        }
        let header = header.ok_or("tiers has no by: add by = \"header:NAME\"").at(given)?;
        if quotas.is_empty() {
            return Err(Fault::new(given, "tiers has no tier: add some with their limits, such as pro = 5000"));
        }
        Ok(policy.tier(move |parts| quotas.get(only(&parts.headers, &header)?).copied()))
    }

    fn with_reserve(&self, policy: Policy) -> Result<Policy, Fault> {
        let example = "critical requests, by critical = { header = \"...\", value = \"...\" }";
        self.reserve.needs("reserve", self.critical.get().is_some(), example)?;
        self.critical.needs("critical", self.reserve.get().is_some(), "a reserve, such as reserve = 0.2")?;
        let Some(critical) = self.critical.get().map(Critical::checked).transpose()? else { return Ok(policy) };
        self.reserve.set(policy, |policy, share| policy.try_reserve(share, move |parts| critical.is_in(&parts.headers)))
    }
}

impl<T> Given<T> {
    fn add_to(
        &self,
        policy: Policy,
        add: impl FnOnce(Policy, &Spanned<T>) -> Result<Policy, Fault>,
    ) -> Result<Policy, Fault> {
        let Some(field) = &self.0 else { return Ok(policy) };
        let policy = add(policy, field)?;
        check(&policy).at(field)?;
        Ok(policy)
    }
}

fn check(policy: &Policy) -> Result<(), Error> {
    RateLimitLayer::try_new(MemoryStore::new(), policy.clone()).map(drop)
}

/// Accepts no other methods, because a misspelt one would limit nothing.
fn read_methods(given: &Spanned<Vec<Spanned<String>>>) -> Result<Vec<Method>, Fault> {
    let known = METHODS.map(|name| (name, name.parse().expect("it is a method")));
    given.get_ref().iter().map(|method| choose("method", method, &known)).collect()
}

#[cfg(feature = "axum")]
fn with_routes(policy: Policy, given: &Spanned<Vec<Spanned<String>>>) -> Result<Policy, Fault> {
    let routes = some("routes", given.get_ref()).at(given)?;
    let named = format!("policy {:?}: ", policy.name());
    for route in routes {
        let checked = check(&policy.clone().routes([route.get_ref()]));
        checked.map_err(|error| error.to_string().replace(&named, "")).at(route)?;
    }
    Ok(policy.routes(routes.iter().map(Spanned::get_ref)))
}

/// Each client must match the policy, because an entry without effect would remain unnoticed.
fn with_list(
    policy: Policy,
    name: &str,
    given: &Given<Vec<Spanned<Entry>>>,
    add: impl Fn(Policy, AccessList) -> Policy,
) -> Result<Policy, Fault> {
    let Some(given) = &given.0 else { return Ok(policy) };
    let entries = some(name, given.get_ref()).at(given)?;
    let mut listed = policy.clone();
    for entry in entries {
        listed = add(listed, entry.get_ref().0.list().map_err(|error| format!("{name}: {error}")).at(entry)?);
    }
    if check(&listed).is_err() {
        // The layer names the number of the entry, and a file its place.
        let numbered = format!("entry 1 of the {name} list of policy {:?}", policy.name());
        let unnumbered = |error: Error| error.to_string().replace(&numbered, &format!("{name} has an entry that"));
        for entry in entries {
            check(&add(policy.clone(), entry.get_ref().0.list().at(entry)?)).map_err(unnumbered).at(entry)?;
        }
    }
    Ok(listed)
}

impl Client {
    fn list(&self) -> Result<AccessList, Error> {
        match self {
            Self::Text(text) if text.is_empty() => {
                Err(Error::invalid("an empty entry: use a CIDR or the value of a key"))
            }
            Self::Text(text) => AccessList::parse([text]),
            Self::Value { value, key: None } => Ok(AccessList::default().key(value)),
            Self::Value { value, key: Some(key) } => Ok(AccessList::default().key_of(&kind(key), value)),
        }
    }

    fn is_address(&self) -> bool {
        matches!(self, Self::Text(text) if text.split('/').next().is_some_and(|start| start.parse::<IpAddr>().is_ok()))
    }
}

fn kind(key: &str) -> String {
    match key.split_once(':') {
        Some(("header", name)) => format!("header {}", name.to_ascii_lowercase()),
        Some((word, name)) => format!("{word} {name}"),
        None if key == "client_ip" || key == "peer_ip" => "ip".to_owned(),
        None => key.to_owned(),
    }
}

#[cfg(all(test, not(feature = "calendar")))]
mod tests {
    use crate::Config;

    #[test]
    fn a_window_whose_feature_is_off_is_an_error_that_names_the_feature() {
        for name in ["hour", "day", "week", "month"] {
            let text =
                format!("[[policy]]\nname = \"a\"\nalgorithm = \"fixed_window\"\nlimit = 1\nwindow = \"{name}\"\n");
            let error = Config::from_toml(&text).expect_err("there is no calendar in this build");
            let named = format!("line 5: window {name:?} needs the feature calendar: turn it on");
            assert!(error.is_invalid() && error.to_string().starts_with(&named), "{error}");
        }
    }
}
