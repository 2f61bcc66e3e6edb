//! The requests a policy applies to.

use http::Method;
use toml::Spanned;

use super::document::{PolicyTable, Texts};
use super::fault::{Fault, choose};
use crate::Policy;
#[cfg(feature = "axum")]
use crate::http::policy::check_route;

/// A misspelt method would limit nothing, so no others are taken.
const METHODS: &[(&str, &Method)] = &[
    ("GET", &Method::GET),
    ("HEAD", &Method::HEAD),
    ("POST", &Method::POST),
    ("PUT", &Method::PUT),
    ("PATCH", &Method::PATCH),
    ("DELETE", &Method::DELETE),
    ("OPTIONS", &Method::OPTIONS),
    ("CONNECT", &Method::CONNECT),
    ("TRACE", &Method::TRACE),
];

pub(super) fn with_scope(mut policy: Policy, table: &PolicyTable) -> Result<Policy, Fault> {
    if let Some(methods) = &table.methods {
        not_empty("methods", methods)?;
        let methods = methods.get_ref().0.iter().map(|name| choose("method", name, METHODS).cloned());
        policy = policy.methods(methods.collect::<Result<Vec<Method>, _>>()?);
    }
    if let Some(routes) = &table.routes {
        policy = with_routes(policy, routes)?;
    }
    if table.preflights == Some(true) {
        policy = policy.with_preflights();
    }
    match &table.preflights_without_key {
        Some(passes) if *passes.get_ref() => keyless_preflights(policy, table, passes),
        _ => Ok(policy),
    }
}

#[cfg(feature = "axum")]
fn with_routes(policy: Policy, routes: &Texts) -> Result<Policy, Fault> {
    not_empty("routes", routes)?;
    for route in &routes.get_ref().0 {
        check_route(route.get_ref()).map_err(|error| Fault::at(route.span(), error.to_string()))?;
    }
    Ok(policy.routes(routes.get_ref().0.iter().map(|route| route.get_ref().as_str())))
}

#[cfg(not(feature = "axum"))]
fn with_routes(_: Policy, routes: &Texts) -> Result<Policy, Fault> {
    Err(Fault::at(routes.span(), "routes are known with the feature axum only: turn it on, or leave them out"))
}

fn keyless_preflights(policy: Policy, table: &PolicyTable, passes: &Spanned<bool>) -> Result<Policy, Fault> {
    if table.missing_key.as_ref().is_none_or(|rule| rule.get_ref() != "deny") {
        let message = "preflights_without_key has no effect without a line missing_key = \"deny\": add it, or leave \
                       preflights_without_key out";
        return Err(Fault::at(passes.span(), message));
    }
    Ok(policy.preflights_without_key())
}

fn not_empty(what: &str, list: &Texts) -> Result<(), Fault> {
    if list.get_ref().0.is_empty() {
        let message =
            format!("{what} is an empty list, so this policy limits nothing: give at least one, or leave it out");
        return Err(Fault::at(list.span(), message));
    }
    Ok(())
}
