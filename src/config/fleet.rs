//! The `[fleet]` table: how many requests all processes serve at once, and which of them are critical. Of a [`Fleet`]
//! only the store is missing: all else was checked, so that a file is valid as a whole or an error.

use http::request::Parts;
use serde::Deserialize;
use toml::Spanned;

use super::error::{At, Fault, Source};
use super::policy::{check_routes, with_slots};
use super::values::{Critical, Given, Names, Period};
use crate::core::{Error, PolicyName, Quota};
use crate::http::policy::is_route;
use crate::http::shed::{Class, FleetShedLayer, OTHERS, fleet_name, not_reserved};
use crate::store::Store;

/// The name, if none is given.
const NAME: &str = "fleet";

/// The table `[fleet]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, under [fleet]")]
pub(super) struct FleetTable {
    name: Given<String>,
    limit: Spanned<u64>,
    reserve: Spanned<f64>,
    slot_ttl: Given<Period>,
    max_hold: Given<Period>,
    critical: Option<Critical>,
    critical_routes: Given<Vec<Spanned<String>>>,
}

/// A fleet shedder without its store.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fleet {
    name: PolicyName,
    quota: Quota,
    reserve: f64,
    critical: Option<Critical>,
    routes: Vec<Box<str>>,
}

impl FleetTable {
    /// Checks the table, whose name must not be that of a policy, as neither may that of the policy for others.
    pub(super) fn build(given: &Spanned<Self>, names: &Names, source: &Source<'_>) -> Result<Fleet, Fault> {
        let table = given.get_ref();
        let fault = |message| match &table.name.0 {
            Some(name) => Fault::new(name, message),
            None => Fault::new(given, message),
        };
        let text = table.name.get().map_or(NAME, String::as_str);
        let name = fleet_name(text).map_err(|error| fault(error.to_string()))?;
        for taken in [text, &format!("{text}{OTHERS}")] {
            if let Some(policy) = names.get(taken) {
                let (line, _) = source.position(&policy.span());
                return Err(fault(format!("name {taken:?} is that of the policy on line {line}: give another")));
            }
        }
        let quota = Quota::try_concurrency(*table.limit.get_ref()).at(&table.limit)?;
        let quota = with_slots(quota, &table.slot_ttl, &table.max_hold)?;
        let reserve = *table.reserve.get_ref();
        let _ = not_reserved(quota, reserve).at(&table.reserve)?;
        if table.critical.is_none() && table.critical_routes.get().is_none() {
            let message = "reserve has no critical requests: add critical = { header = \"...\", value = \"...\" } or \
                           critical_routes = [\"...\"]";
            return Err(Fault::new(&table.reserve, message));
        }
        let _ = table.critical.as_ref().map(Critical::test).transpose()?;
        let routes = check_routes("critical_routes", &table.critical_routes)?.into_iter().map(Box::from).collect();
        Ok(Fleet { name, quota, reserve, critical: table.critical.clone(), routes })
    }
}

impl Fleet {
    /// Returns the shedder on a store.
    pub(super) fn layer(&self, store: impl Store) -> Result<FleetShedLayer, Error> {
        let layer = FleetShedLayer::try_new(store, self.name.as_str(), self.quota, self.reserve)?;
        let has_value = self.critical.as_ref().map(|critical| critical.test().expect("it was checked"));
        let routes = self.routes.clone();
        let is_critical = move |parts: &Parts| {
            is_route(parts, &routes) || has_value.as_ref().is_some_and(|has_value| has_value(parts))
        };
        Ok(layer.classify(move |parts| if is_critical(parts) { Class::Critical } else { Class::from_parts(parts) }))
    }
}
