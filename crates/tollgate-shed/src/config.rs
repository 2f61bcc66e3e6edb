//! The table `[fleet]` of a TOML file: the slots of all processes, and which requests are critical.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use axum::extract::MatchedPath;
use http::request::Parts;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tollgate::policy::PolicyName;
use tollgate::store::Store;
use tollgate::{Error, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_config::table::{At, Critical, Fault, OnlyValue, Source, duration};
use toml::Spanned;

use crate::fleet::{OTHERS, fleet_name, not_reserved};
use crate::{Class, FleetShedLayer};

/// The fleet shedder of a TOML file, from the table `[fleet]`. Other tables are for other crates.
///
/// | field | value | default |
/// | --- | --- | --- |
/// | `name` | the name of the shedder, unique among the services that share a store, different from the policies of the file; up to 57 characters | `"fleet"` |
/// | `limit` | the number of requests that all processes together serve at once | required |
/// | `reserve` | the fraction of them that is kept for critical requests, above 0 and below 1 | required |
/// | `slot_ttl` | how long a slot outlives its process: see [`Quota::slot_ttl`] | `"30s"` |
/// | `max_hold` | the longest that one request holds its slot | `"1h"` |
/// | `critical` | `{ header = "NAME", value = "TEXT" }`: requests are critical if this is the only value of the header | none |
/// | `critical_routes` | requests to these routes are critical, in the syntax of axum | none |
///
/// One of `critical` and `critical_routes` is required: all requests that neither of them makes critical have the class
/// that [`Class::from_parts`] returns. Any client that can send the header is never shed.
///
/// Two values are equal if their shedders are, so a service that reads its file again can tell whether the table has
/// changed. A shedder in use does not change with the file.
///
/// # Examples
///
/// ```
/// use tollgate::MemoryStore;
/// use tollgate_shed::FleetConfig;
///
/// let file = r#"
///     [fleet]
///     limit = 500
///     reserve = 0.2
///     critical = { header = "x-priority", value = "high" }
/// "#;
/// let fleet = FleetConfig::from_toml(file)?.expect("the file has one");
/// let layer = fleet.layer(MemoryStore::new())?;
/// # let _ = layer;
///
/// let error = FleetConfig::from_toml("[fleet]\nlimit = 0\nreserve = 0.2").expect_err("it admits nothing");
/// assert_eq!(error.to_string(), "line 2: limit 0 admits nothing: at least 1 is needed (column 9)");
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FleetConfig {
    name: PolicyName,
    quota: Quota,
    reserve: f64,
    critical: Option<OnlyValue>,
    routes: Vec<String>,
}

impl FleetConfig {
    /// Reads a file's text. Without the table it is `None`.
    ///
    /// # Errors
    ///
    /// If it is no TOML, or the table holds anything that is unknown or can never work. The message is one line that starts
    /// with the number of the line in the file, and ends with the column.
    pub fn from_toml(text: &str) -> Result<Option<Self>, Error> {
        Self::read(&Source { name: None, text })
    }

    /// Reads a file. Returns `None` if it does not have the table.
    ///
    /// # Errors
    ///
    /// If the file cannot be read as UTF-8, and like [`from_toml`](Self::from_toml). The message starts with the path.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Option<Self>, Error> {
        Source::of_file(path.as_ref(), Self::read)
    }

    /// Returns the shedder on a store.
    ///
    /// # Errors
    ///
    /// If the store has no slots: all else was checked when the file was read.
    pub fn layer(&self, store: impl Store) -> Result<FleetShedLayer, Error> {
        let layer = FleetShedLayer::try_new(store, self.name.as_str(), self.quota, self.reserve)?;
        let (critical, routes) = (self.critical.clone(), self.routes.clone());
        let is_critical = move |parts: &Parts| {
            is_route(parts, &routes) || critical.as_ref().is_some_and(|critical| critical.is_in(&parts.headers))
        };
        Ok(layer.classify(move |parts| if is_critical(parts) { Class::Critical } else { Class::from_parts(parts) }))
    }

    fn read(source: &Source<'_>) -> Result<Option<Self>, Error> {
        let file = toml::from_str::<File>(source.text).map_err(Fault::from);
        file.and_then(|file| file.build(source)).map_err(|fault| source.error(&fault))
    }
}

#[derive(Deserialize)]
struct File {
    fleet: Option<Spanned<FleetTable>>,
    #[serde(default)]
    policy: Vec<NamedTable>,
}

#[derive(Deserialize)]
struct NamedTable {
    name: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, under [fleet]")]
struct FleetTable {
    name: Option<Spanned<String>>,
    limit: Spanned<u64>,
    reserve: Spanned<f64>,
    slot_ttl: Option<Spanned<Period>>,
    max_hold: Option<Spanned<Period>>,
    critical: Option<Critical>,
    critical_routes: Option<Spanned<Vec<Spanned<String>>>>,
}

struct Period(Duration);

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wrong = "expected a duration in quotes, such as \"100ms\", \"60s\" or \"30d\"";
        let varies = ", which differs in length: use a number and a unit, such as 100ms, 60s, 1h or 30d";
        let text = String::deserialize(from).map_err(|_| D::Error::custom(wrong))?;
        duration(&text, varies).map(Self).map_err(D::Error::custom)
    }
}

impl File {
    fn build(self, source: &Source<'_>) -> Result<Option<FleetConfig>, Fault> {
        let Some(fleet) = self.fleet else { return Ok(None) };
        let place = fleet.get_ref().name.as_ref().map_or(fleet.span(), Spanned::span);
        let table = fleet.into_inner();
        let text = table.name.as_ref().map_or("fleet", |name| name.get_ref());
        let name = fleet_name(text).map_err(|error| Fault(place.clone(), error.to_string()))?;
        let policies = self.policy.into_iter().filter_map(|policy| policy.name);
        let policies: HashMap<_, _> = policies.map(|name| (name.get_ref().clone(), name.span())).collect();
        for taken in [text.to_owned(), format!("{text}{OTHERS}")] {
            if let Some(policy) = policies.get(&taken) {
                let (line, _) = source.position(policy);
                let message = format!("name {taken:?} is that of the policy on line {line}: use another");
                return Err(Fault(place, message));
            }
        }
        table.build(name).map(Some)
    }
}

impl FleetTable {
    fn build(self, name: PolicyName) -> Result<FleetConfig, Fault> {
        let mut quota = Quota::try_concurrency(*self.limit.get_ref()).at(&self.limit)?;
        if let Some(ttl) = &self.slot_ttl {
            quota = quota.try_slot_ttl(ttl.get_ref().0).at(ttl)?;
        }
        if let Some(hold) = &self.max_hold {
            quota = quota.try_max_hold(hold.get_ref().0).at(hold)?;
        }
        let reserve = *self.reserve.get_ref();
        let _ = not_reserved(quota, reserve).at(&self.reserve)?;
        if self.critical.is_none() && self.critical_routes.is_none() {
            let message = "reserve has no critical requests: add critical = { header = \"...\", value = \"...\" } or \
                           critical_routes = [\"...\"]";
            return Err(Fault::new(&self.reserve, message));
        }
        let critical = self.critical.as_ref().map(Critical::checked).transpose()?;
        let routes = self.critical_routes.map(checked_routes).transpose()?.unwrap_or_default();
        Ok(FleetConfig { name, quota, reserve, critical, routes })
    }
}

fn checked_routes(given: Spanned<Vec<Spanned<String>>>) -> Result<Vec<String>, Fault> {
    if given.get_ref().is_empty() {
        return Err(Fault::new(&given, "critical_routes is an empty list: at least one is needed"));
    }
    for route in given.get_ref() {
        // A layer that is built checks the routes of its policies.
        let policy = Policy::new("critical_routes", Quota::per_second(1)).routes([route.get_ref().as_str()]);
        let _ = RateLimitLayer::composite(MemoryStore::new()).try_policies([policy]).at(route)?;
    }
    Ok(given.into_inner().into_iter().map(Spanned::into_inner).collect())
}

fn is_route(parts: &Parts, routes: &[String]) -> bool {
    let matched = parts.extensions.get::<MatchedPath>();
    matched.is_some_and(|matched| routes.iter().any(|route| normal(route) == normal(matched.as_str())))
}

/// Leaves at most one slash at the end: the root of a nested service has one or two, depending on whether the request
/// has none or one, and is a single route.
fn normal(mut template: &str) -> &str {
    while let Some(shorter) = template.strip_suffix('/').filter(|shorter| shorter.ends_with('/')) {
        template = shorter;
    }
    template
}
