//! A `[[policy]]` table as a policy.

use std::time::Duration;

use toml::Spanned;

use super::document::{Period, PolicyTable, Whole};
use super::fault::{Fault, choose};
use super::keys::read_key;
use crate::{Algorithm, Error, MissingKey, Policy, Quota};

const MISSING_KEY: &[(&str, MissingKey)] =
    &[("skip", MissingKey::Skip), ("deny", MissingKey::Deny), ("share", MissingKey::Share)];

pub(super) fn read_policy(table: &Spanned<PolicyTable>) -> Result<Policy, Fault> {
    let PolicyTable { name, key, cost, missing_key, advertise, .. } = table.get_ref();
    let name = required(table, name.as_ref(), "name = \"...\"")?;
    let quota = read_quota(table)?;
    let mut policy =
        Policy::try_new(name.get_ref(), quota).map_err(|error| Fault::at(name.span(), error.to_string()))?;
    if let Some(key) = key {
        policy = policy.key(read_key(key)?);
    }
    if let Some(rule) = missing_key {
        policy = policy.missing_key(choose("missing_key", rule, MISSING_KEY)?);
    }
    if let Some(cost) = cost {
        policy = policy.cost(cost.get_ref().0);
    }
    if *advertise == Some(false) {
        policy = policy.unadvertised();
    }
    Ok(policy)
}

fn read_quota(table: &Spanned<PolicyTable>) -> Result<Quota, Fault> {
    let PolicyTable { algorithm, limit, window, burst, queue, .. } = table.get_ref();
    let algorithm = algorithm.as_ref().map(|name| choose("algorithm", name, Algorithm::ALL));
    let algorithm = algorithm.transpose()?.unwrap_or(Algorithm::TokenBucket);
    let limit = required(table, limit.as_ref(), "limit = N")?;
    let window = required(table, window.as_ref(), "window = \"60s\"")?;
    let period = read_period(window)?;
    // With the smallest limit only the window can be at fault.
    Quota::try_new(algorithm, 1, period).map_err(|error| Fault::at(window.span(), error.to_string()))?;
    let quota = Quota::try_new(algorithm, limit.get_ref().0, period)
        .map_err(|error| Fault::at(limit.span(), error.to_string()))?;
    let quota = with_units(quota, burst.as_ref(), Quota::try_burst)?;
    with_units(quota, queue.as_ref(), Quota::try_queue)
}

/// The quota with the burst or the queue that is given.
fn with_units(
    quota: Quota,
    units: Option<&Spanned<Whole>>,
    set: fn(Quota, u64) -> Result<Quota, Error>,
) -> Result<Quota, Fault> {
    let Some(units) = units else { return Ok(quota) };
    set(quota, units.get_ref().0).map_err(|error| Fault::at(units.span(), error.to_string()))
}

fn read_period(window: &Spanned<Period>) -> Result<Duration, Fault> {
    let Period(text) = window.get_ref();
    humantime::parse_duration(text).map_err(|error| {
        let message =
            format!("window {text:?} is not a duration: give a number and a unit, such as 100ms, 60s, 1h or 30d");
        Fault::at(window.span(), message).caused_by(error)
    })
}

fn required<'a, T>(
    table: &Spanned<PolicyTable>,
    field: Option<&'a Spanned<T>>,
    line: &str,
) -> Result<&'a Spanned<T>, Fault> {
    field.ok_or_else(|| {
        let (name, _) = line.split_once(' ').unwrap_or((line, ""));
        Fault::at(table.span(), format!("this policy has no {name}: add a line {line}"))
    })
}
