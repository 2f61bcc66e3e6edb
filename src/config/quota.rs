//! How much a policy admits, and each of its tiers.

use std::collections::HashMap;
use std::time::Duration;

use toml::Spanned;

use super::document::PolicyTable;
use super::fault::{Fault, choose};
use super::header::{from_header, normal_value};
use super::lists::TierTable;
use super::policy::required;
use super::values::{Period, Whole};
use crate::http::key::field_value::only;
use crate::{Algorithm, Error, Policy, Quota};

/// What counts, by its name in files.
#[derive(Clone, Copy)]
enum Form {
    Of(Algorithm),
    /// As many units as it takes where they are asked for.
    Longer(Algorithm),
}

impl Form {
    fn read(table: &PolicyTable) -> Result<Self, Fault> {
        let Some(name) = &table.algorithm else { return Ok(Form::Of(Algorithm::TokenBucket)) };
        let mut forms: Vec<_> = Algorithm::ALL.iter().map(|(name, algorithm)| (*name, Form::Of(*algorithm))).collect();
        let longer = |algorithm: &Algorithm| Some((algorithm.facts().longer?.0, Form::Longer(*algorithm)));
        forms.extend(Algorithm::EACH.iter().filter_map(longer));
        choose("algorithm", name, &forms)
    }

    fn quota(self, limit: u64, window: Duration) -> Result<Quota, Error> {
        match self {
            Form::Of(algorithm) => Quota::try_new(algorithm, limit, window),
            Form::Longer(algorithm) => Quota::try_longer(algorithm, limit, window),
        }
    }
}

pub(super) fn read_quota(table: &Spanned<PolicyTable>) -> Result<Quota, Fault> {
    let PolicyTable { limit, window, burst, queue, .. } = table.get_ref();
    let form = Form::read(table.get_ref())?;
    let limit = required(table, limit.as_ref(), "limit = N")?;
    let window = required(table, window.as_ref(), "window = \"60s\"")?;
    let period = read_period("window", window)?;
    // With the smallest limit only the window can be at fault.
    form.quota(1, period).map_err(|error| Fault::at(window.span(), error.to_string()))?;
    let quota = form.quota(limit.get_ref().0, period).map_err(|error| Fault::at(limit.span(), error.to_string()))?;
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

pub(super) fn read_period(what: &str, given: &Spanned<Period>) -> Result<Duration, Fault> {
    let Period(text) = given.get_ref();
    if text.split(|other: char| !other.is_alphabetic()).any(|unit| unit == "M") {
        let message = format!("{what} {text:?} has the unit M, which may be minutes or months: give 1m or 30d");
        return Err(Fault::at(given.span(), message));
    }
    humantime::parse_duration(text).map_err(|error| {
        let message =
            format!("{what} {text:?} is not a duration: give a number and a unit, such as 100ms, 60s, 1h or 30d");
        Fault::at(given.span(), message).caused_by(error)
    })
}

/// The policy, with a limit for each of its tiers.
pub(super) fn with_tiers(policy: Policy, table: &PolicyTable) -> Result<Policy, Fault> {
    let Some(given) = &table.tiers else { return Ok(policy) };
    let TierTable { by, limits } = given.get_ref();
    let by = by.as_ref().ok_or_else(|| Fault::at(given.span(), "tiers has no by: add by = \"header:NAME\""))?;
    let header = from_header("tiers by", by.span(), by.get_ref())?;
    if limits.is_empty() {
        return Err(Fault::at(given.span(), "tiers has no tier: add some with their limits, such as pro = 5000"));
    }
    let form = Form::read(table)?;
    let mut quotas = HashMap::new();
    for (name, limit) in limits {
        normal_value("tiers", limit.span(), name)?;
        let quota = tier(form, policy.quota().window(), table, limit.get_ref().0);
        let quota = quota.map_err(|error| Fault::at(limit.span(), format!("tier {name:?}: {error}")))?;
        quotas.insert(name.clone().into_bytes(), quota);
    }
    Ok(policy.tier(move |parts| quotas.get(only(&parts.headers, &header).ok()??).copied()))
}

/// The quota with another limit.
fn tier(form: Form, window: Duration, table: &PolicyTable, limit: u64) -> Result<Quota, Error> {
    let quota = form.quota(limit, window)?;
    let quota = table.burst.as_ref().map_or(Ok(quota), |burst| quota.try_burst(burst.get_ref().0))?;
    table.queue.as_ref().map_or(Ok(quota), |queue| quota.try_queue(queue.get_ref().0))
}
