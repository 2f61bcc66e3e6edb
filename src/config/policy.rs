//! A `[[policy]]` table as a policy: its name and quota, and what it does without a key.
//!
//! A table comes in, a [`Policy`] goes out; unknown fields are refused first, so that a misspelt one is never
//! ignored. Each step takes the policy, reads its own fields, and returns it with them; the key is set before the
//! lists and tiers, which depend on it or on the quota. [`FIELDS`] must have each field that a step reads.

use std::collections::HashMap;
use std::time::Duration;

use super::access::with_lists;
use super::ban::with_ban;
use super::document::{Field, Table};
use super::keys::read_key;
use super::requests::{with_cost, with_reserve, with_scope, with_unit};
use super::server::Server;
use super::window::{Period, read_period, refuse_calendar};
use crate::core::quota::SLOT_LIFE;
use crate::core::{Algorithm, Error, Quota};
use crate::http::key::value::only;
use crate::http::{MissingKey, Policy};

/// All fields of a policy.
const FIELDS: &[&str] = &[
    "name",
    "key",
    "algorithm",
    "limit",
    "window",
    "zone",
    "anchor",
    "burst",
    "queue",
    "at_once",
    "slot_life",
    "hold_at_most",
    "cost",
    "min_cost",
    "count",
    "unit",
    "over",
    "missing_key",
    "methods",
    "routes",
    "allow",
    "deny",
    "serve_unknown_addresses",
    "reserve",
    "critical",
    "tiers",
    "ban",
    "advertise",
    "shadow",
    "metered",
    "preflights",
    "preflights_without_key",
    "refund_dropped",
];

/// The words of the field `missing_key`.
const MISSING_KEY: &[(&str, MissingKey)] =
    &[("skip", MissingKey::Skip), ("deny", MissingKey::Deny), ("share", MissingKey::Share)];

/// Sets an option of a policy.
type Switch = fn(Policy) -> Policy;

/// The options that are `true` or `false`, and `false` by default.
const SWITCHES: &[(&str, Switch)] = &[
    ("shadow", Policy::shadow),
    ("metered", Policy::metered),
    ("preflights", Policy::with_preflights),
    ("refund_dropped", Policy::refund_dropped),
];

/// Sets units of a quota.
type SetUnits = fn(Quota, u64) -> Result<Quota, Error>;

/// The fields that set units of a quota besides its limit, in the order in which they are set.
const UNITS: &[(&str, SetUnits)] =
    &[("burst", Quota::try_burst), ("queue", Quota::try_queue), ("at_once", Quota::try_at_once)];

/// Sets a time of a quota.
type SetTime = fn(Quota, Duration) -> Result<Quota, Error>;

/// The fields that set times of a quota besides its window.
const TIMES: &[(&str, SetTime)] = &[("slot_life", Quota::try_slot_life), ("hold_at_most", Quota::try_hold_at_most)];

/// The policy of a table, and the field that has its name.
pub(super) fn read_policy<'a>(given: Field<'a>, server: &Server) -> Result<(Policy, Field<'a>), Error> {
    let table = given.table("tables, each under [[policy]]")?.only(FIELDS)?;
    let name = table.required("name", "this policy has no name: add a line name = \"...\"")?;
    let policy = Policy::try_new(name.text()?, read_quota(table)?).map_err(|error| name.error(error))?;
    let policy = with_key(policy, table, server)?;
    let policy = with_lists(policy, table)?;
    let policy = with_scope(policy, table)?;
    let policy = with_cost(policy, table)?;
    let policy = with_unit(policy, table)?;
    let policy = with_tiers(policy, table)?;
    policy.check_cost().map_err(|error| table.get("cost").unwrap_or(name).error(error))?;
    let policy = with_reserve(policy, table)?;
    let policy = with_ban(policy, table)?;
    let policy = with_switches(policy, table)?;
    policy.check_free().map_err(|error| table.get("cost").unwrap_or(name).error(error))?;
    Ok((policy, name))
}

/// Sets the key, if one is given, the client that lists are by, and what happens to requests without a key.
fn with_key(policy: Policy, table: Table<'_>, server: &Server) -> Result<Policy, Error> {
    let policy = match table.get("key") {
        Some(key) => policy.key(read_key(key, server)?),
        None => policy,
    };
    #[cfg(feature = "axum")]
    let policy = match table.get("allow").or(table.get("deny")) {
        Some(_) => policy.lists_by(server.client().clone()),
        None => policy,
    };
    match table.get("missing_key") {
        Some(rule) => Ok(policy.missing_key(rule.choose(MISSING_KEY)?)),
        None => Ok(policy),
    }
}

/// Sets the options that are `true`, and `advertise` if it is `false`.
fn with_switches(mut policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    for (name, switch) in SWITCHES {
        if table.switched_on(name)?.is_some() {
            policy = switch(policy);
        }
    }
    match table.get("advertise") {
        Some(shows) if !shows.flag()? => Ok(policy.unadvertised()),
        _ => Ok(policy),
    }
}

/// What counts, by its name in files.
#[derive(Clone, Copy)]
enum Form {
    /// The algorithm as it is.
    Of(Algorithm),
    /// The form that takes more units.
    Longer(Algorithm),
}

impl Form {
    /// Reads the field `algorithm`: a token bucket, if there is none.
    fn read(table: Table<'_>) -> Result<Self, Error> {
        let Some(name) = table.get("algorithm") else { return Ok(Form::Of(Algorithm::TokenBucket)) };
        let mut forms: Vec<_> = Algorithm::ALL.iter().map(|(name, algorithm)| (*name, Form::Of(*algorithm))).collect();
        let longer = |algorithm: &Algorithm| Some((algorithm.facts().longer?.0, Form::Longer(*algorithm)));
        forms.extend(Algorithm::EACH.iter().filter_map(longer));
        name.choose(&forms)
    }

    /// Returns whether its units are slots, which have a life instead of a window.
    fn is_held(self) -> bool {
        let (Form::Of(algorithm) | Form::Longer(algorithm)) = self;
        algorithm.facts().held
    }

    /// Returns whether its windows may be those of a calendar: it counts in one window at a time.
    fn takes_calendars(self) -> bool {
        let (Form::Of(algorithm) | Form::Longer(algorithm)) = self;
        algorithm.facts().windows == 1
    }

    /// Returns a quota of this form; of a calendar, if the form takes one.
    fn quota(self, limit: u64, period: Period) -> Result<Quota, Error> {
        match (self, period) {
            (_, Period::Calendar(calendar)) => Quota::try_calendar_window(limit, calendar),
            (Form::Of(algorithm), Period::Length(window)) => Quota::try_new(algorithm, limit, window),
            (Form::Longer(algorithm), Period::Length(window)) => Quota::try_longer(algorithm, limit, window),
        }
    }
}

/// Reads limit, window, units and times. Errors of the window are at its place, and all others at that of the number at
/// fault.
fn read_quota(table: Table<'_>) -> Result<Quota, Error> {
    let form = Form::read(table)?;
    let limit = table.required("limit", "this policy has no limit: add a line limit = N")?;
    let period = read_window(form, table)?;
    let quota = form.quota(limit.whole()?, period).map_err(|error| limit.error(error))?;
    with_extras(quota, table, |field, error| field.error(error))
}

/// Reads the window. Slots have none, and begin with the life that they have by default.
fn read_window(form: Form, table: Table<'_>) -> Result<Period, Error> {
    if form.is_held() {
        refuse_calendar(table)?;
        let window = table.get("window");
        let wrong = |window: Field<'_>| window.error("a concurrency has a slot_life, and no window: leave it out");
        return window.map_or(Ok(Period::Length(SLOT_LIFE)), |window| Err(wrong(window)));
    }
    let window = table.required("window", "this policy has no window: add a line window = \"60s\"")?;
    let period = read_period(window, table, form.takes_calendars())?;
    // With the smallest limit only the window can be at fault.
    let _ = form.quota(1, period).map_err(|error| window.error(error))?;
    Ok(period)
}

/// The quota with the burst, the queue and the times of slots that are given.
pub(super) fn with_extras(
    mut quota: Quota,
    table: Table<'_>,
    error: impl Fn(Field<'_>, Error) -> Error,
) -> Result<Quota, Error> {
    for (name, set) in UNITS {
        if let Some(field) = table.get(name) {
            quota = set(quota, field.whole()?).map_err(|wrong| error(field, wrong))?;
        }
    }
    for (name, set) in TIMES {
        if let Some(field) = table.get(name) {
            quota = set(quota, field.period()?).map_err(|wrong| error(field, wrong))?;
        }
    }
    Ok(quota)
}

/// The policy, with a limit for each of its tiers.
fn with_tiers(policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    let Some(given) = table.get("tiers") else { return Ok(policy) };
    let tiers = given.table("a table such as { by = \"header:x-plan\", free = 100, pro = 5000 }")?;
    let by = tiers.required("by", "tiers has no by: add by = \"header:NAME\"")?;
    let header = by.header("tiers by")?;
    let (form, period) = (Form::read(table)?, Period::of(policy.quota()));
    let mut quotas = HashMap::new();
    for limit in tiers.fields().into_iter().filter(|field| field.name != "by") {
        limit.check_header_value("tiers", limit.name)?;
        let error = |error: Error| limit.error(format!("tier {:?}: {error}", limit.name));
        let quota = form.quota(limit.whole()?, period).map_err(error)?;
        quotas.insert(limit.name.as_bytes().to_owned(), with_extras(quota, table, |_, wrong| error(wrong))?);
    }
    if quotas.is_empty() {
        return Err(given.error("tiers has no tier: add some with their limits, such as pro = 5000"));
    }
    Ok(policy.tier(move |parts| quotas.get(only(&parts.headers, &header).ok()??).copied()))
}
