//! The `[fleet]` table: how many requests all processes serve at once, and which of them are critical.
//!
//! A table comes in, and a [`Fleet`] goes out, of which only a store is missing: all else was checked, so that a file is
//! valid as a whole or an error.

use std::collections::HashMap;

use http::HeaderName;
use http::request::Parts;

use super::document::{Field, Table};
use super::policy::with_extras;
use super::requests::read_critical;
use crate::core::{Error, PolicyName, Quota};
use crate::http::key::value::only;
#[cfg(feature = "axum")]
use crate::http::policy::{check_route, is_route};
use crate::http::shed::{Class, FleetShedLayer, OTHERS, fleet_name, not_reserved};
use crate::store::Store;

/// All fields of the fleet.
const FIELDS: &[&str] = &["name", "limit", "reserve", "slot_life", "hold_at_most", "critical", "critical_routes"];

/// The name, if none is given.
const NAME: &str = "fleet";

/// A fleet shedder without its store.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fleet {
    name: PolicyName,
    quota: Quota,
    reserve: f64,
    critical: Critical,
}

/// Which requests are critical.
#[derive(Clone, Debug, PartialEq)]
struct Critical {
    /// Those whose only value of the header is this.
    header: Option<(HeaderName, String)>,
    /// Those to these routes.
    routes: Box<[Box<str>]>,
}

impl Fleet {
    /// Reads the table; `policies` has the names of policies and their places, none of which it may have.
    pub(super) fn read(given: Field<'_>, policies: &HashMap<String, Field<'_>>) -> Result<Self, Error> {
        let table = given.table("a table, under [fleet]")?.only(FIELDS)?;
        let name = read_name(given, table, policies)?;
        let limit = table.required("limit", "the fleet has no limit: add a line limit = N")?;
        let quota = Quota::try_concurrency(limit.whole()?);
        let quota = quota.map_err(|error| limit.error(error))?;
        let quota = with_extras(quota, table, |field, error| field.error(error))?;
        let reserve = table.required("reserve", "the fleet has no reserve: add a line reserve = 0.2")?;
        let fraction = reserve.fraction()?;
        not_reserved(quota, fraction).map_err(|error| reserve.error(error))?;
        Ok(Self { name, quota, reserve: fraction, critical: Critical::read(table, reserve)? })
    }

    /// Returns the shedder on a store.
    pub(super) fn layer(&self, store: impl Store) -> Result<FleetShedLayer, Error> {
        let layer = FleetShedLayer::try_new(store, &self.name, self.quota, self.reserve)?;
        let critical = self.critical.clone();
        Ok(layer.classify(move |parts| if critical.has(parts) { Class::Critical } else { Class::of(parts) }))
    }
}

impl Critical {
    fn read(table: Table<'_>, reserve: Field<'_>) -> Result<Self, Error> {
        let header = table.get("critical").map(read_critical).transpose()?;
        let header = header.map(|(_, header, value)| (header, value));
        let routes = table.get("critical_routes").map(read_routes).transpose()?;
        if header.is_none() && routes.is_none() {
            return Err(reserve.error(
                "reserve has no critical requests: add critical = { header = \"...\", value = \"...\" } or \
                 critical_routes = [\"...\"]",
            ));
        }
        Ok(Self { header, routes: routes.unwrap_or_default() })
    }

    /// Returns whether a request is critical.
    fn has(&self, parts: &Parts) -> bool {
        let has_value =
            |(header, value): &(HeaderName, String)| only(&parts.headers, header) == Ok(Some(value.as_bytes()));
        #[cfg(feature = "axum")]
        if is_route(parts, &self.routes) {
            return true;
        }
        self.header.as_ref().is_some_and(has_value)
    }
}

/// Reads the name, which must not be that of a policy, as neither may that of the policy for others.
fn read_name(given: Field<'_>, table: Table<'_>, policies: &HashMap<String, Field<'_>>) -> Result<PolicyName, Error> {
    let field = table.get("name").unwrap_or(given);
    let text = table.get("name").map_or(Ok(NAME), |name| name.text())?;
    let name = fleet_name(text).map_err(|error| field.error(error))?;
    let others = format!("{text}{OTHERS}");
    for taken in [text, &others] {
        if let Some(line) = policies.get(taken).map(Field::line) {
            let message = format!("name {taken:?} is that of the policy on line {line}: give another");
            return Err(field.error(message));
        }
    }
    Ok(name)
}

/// Reads the routes, each of which has to be a template that axum could have.
#[cfg(feature = "axum")]
fn read_routes(given: Field<'_>) -> Result<Box<[Box<str>]>, Error> {
    let routes = given.texts("route")?;
    if routes.is_empty() {
        return Err(given.error("critical_routes is an empty list: give at least one, or leave it out"));
    }
    let checked = routes.into_iter().map(|route| {
        check_route(route.text()?).map_err(|error| route.error(error))?;
        Ok(route.text()?.into())
    });
    checked.collect()
}

#[cfg(not(feature = "axum"))]
fn read_routes(given: Field<'_>) -> Result<Box<[Box<str>]>, Error> {
    Err(given.error("routes are known with the feature axum only: enable it, or leave them out"))
}
