//! The requests that a policy is for, what they cost, which of them count, and which are critical.
//!
//! A policy and its table come in, and the policy with these fields goes out. What a file cannot mean is an error:
//! an empty list, which would limit nothing; a reserve that no request may use; a switch without the field that it
//! acts on.

use http::request::Parts;
use http::{HeaderName, Method, StatusCode};

use super::document::{Field, Table};
use crate::core::Error;
use crate::http::key::value::{lines, only, trimmed};
#[cfg(feature = "axum")]
use crate::http::policy::check_route;
use crate::http::{Count, Over, Policy};

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

/// Makes a count.
type Make = fn() -> Count;

/// The words of the field `count`.
const COUNTS: &[(&str, Make)] =
    &[("all", Count::all), ("failures", Count::failures), ("successes", Count::successes), ("served", Count::served)];

/// Sets the bytes that count.
type CountBytes = fn(Policy, Over) -> Policy;

/// The words of the field `unit`.
const UNITS: &[(&str, Option<CountBytes>)] = &[
    ("requests", None),
    ("response_bytes", Some(Policy::response_bytes)),
    ("request_bytes", Some(Policy::request_bytes)),
];

/// The words of the field `over`.
const OVER: &[(&str, Over)] = &[("pace", Over::Pace), ("cut", Over::Cut)];

/// Sets the methods and routes that the policy applies to, and whether preflights pass without the key.
pub(super) fn with_scope(mut policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    if let Some(given) = table.get("methods") {
        let methods = some_texts(given, "method")?;
        let methods = methods.iter().map(|method| method.choose(METHODS).cloned());
        policy = policy.methods(methods.collect::<Result<Vec<Method>, _>>()?);
    }
    if let Some(given) = table.get("routes") {
        policy = with_routes(policy, given)?;
    }
    let Some(passes) = table.switched_on("preflights_without_key")? else { return Ok(policy) };
    if table.get("missing_key").and_then(|rule| rule.as_text()) != Some("deny") {
        return Err(passes.error(
            "preflights_without_key has no effect without a line missing_key = \"deny\": add it, or leave \
             preflights_without_key out",
        ));
    }
    Ok(policy.preflights_without_key())
}

/// Sets the routes, each of which has to be a template that axum could have.
#[cfg(feature = "axum")]
fn with_routes(policy: Policy, given: Field<'_>) -> Result<Policy, Error> {
    let mut routes = Vec::new();
    for route in some_texts(given, "route")? {
        check_route(route.text()?).map_err(|error| route.error(error))?;
        routes.push(route.text()?);
    }
    Ok(policy.routes(routes))
}

#[cfg(not(feature = "axum"))]
fn with_routes(_: Policy, given: Field<'_>) -> Result<Policy, Error> {
    Err(given.error("routes are known with the feature axum only: enable it, or leave them out"))
}

/// The elements of a list that is not empty, each of which is one of `name`.
fn some_texts<'a>(given: Field<'a>, name: &'a str) -> Result<Vec<Field<'a>>, Error> {
    let texts = given.texts(name)?;
    if texts.is_empty() {
        let advice = "give at least one, or leave it out";
        return Err(given.error(format!("{} is an empty list, so this policy limits nothing: {advice}", given.name)));
    }
    Ok(texts)
}

/// Sets what a request costs, and which requests count.
pub(super) fn with_cost(policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    let policy = read_cost(policy, table)?;
    match table.get("count") {
        Some(count) => Ok(policy.count(read_count(count)?)),
        None => Ok(policy),
    }
}

/// Sets what is counted, if it is bytes.
pub(super) fn with_unit(policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    let (unit, over) = (table.get("unit"), table.get("over"));
    let count = unit.map(|unit| unit.choose(UNITS)).transpose()?.flatten();
    let choice = over.map(|over| over.choose(OVER)).transpose()?;
    let Some((unit, count)) = unit.zip(count) else {
        let wrong = "over has no effect without a line unit = \"response_bytes\" or \"request_bytes\": add it, or \
                     leave over out";
        return over.map_or(Ok(policy), |over| Err(over.error(wrong)));
    };
    for option in ["cost", "count", "metered", "refund_dropped", "ban"] {
        if let Some(field) = table.get(option) {
            return Err(field.error(format!("{option} is for policies that count requests: leave it out")));
        }
    }
    let policy = count(policy, choice.unwrap_or(Over::Pace));
    policy.check_bytes().map_err(|error| table.get("algorithm").unwrap_or(unit).error(error))?;
    Ok(policy)
}

/// Sets the cost: a number, or the header that contains it, which is at least `min_cost`.
fn read_cost(policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    let (given, least) = (table.get("cost"), table.get("min_cost"));
    let min = least.map_or(Ok(1), |least| least.whole())?;
    let Some(given) = given.filter(|given| given.as_whole().is_none()) else {
        let wrong = "min_cost has no effect without a line cost = \"header:NAME\": add it, or leave min_cost out";
        if let Some(least) = least {
            return Err(least.error(wrong));
        }
        return Ok(match given.and_then(|given| given.as_whole()) {
            Some(units) => policy.cost(units),
            None => policy,
        });
    };
    if given.as_text().is_none() {
        return Err(given.wrong("a whole number, 0 or more, or \"header:NAME\""));
    }
    let header = given.header("cost")?;
    if let Some(least) = least.filter(|_| min > policy.quota().capacity()) {
        let wrong = format!("min_cost {min} is above what the quota holds, so all would be refused: lower it");
        return Err(least.error(wrong));
    }
    Ok(policy.certain_cost(move |parts| said(parts, &header, min)))
}

/// Returns the units in a request's header, 1 without it, but at least `min`; as an error, if lines, or values that a
/// proxy joined with commas, differ, or are not digits: then the largest number.
fn said(parts: &Parts, header: &HeaderName, min: u64) -> Result<u64, u64> {
    let (mut said, mut is_certain) = (None, true);
    for value in lines(&parts.headers, header).flat_map(|line| line.split(|byte| *byte == b',')) {
        let units = units(value);
        is_certain &= units.is_some() && (said.is_none() || said == units);
        said = said.max(units);
    }
    let units = said.unwrap_or(1).max(min);
    if is_certain { Ok(units) } else { Err(units) }
}

/// Returns the units in one value of a header, if it is all digits.
fn units(value: &[u8]) -> Option<u64> {
    let text = str::from_utf8(trimmed(value)).ok().filter(|text| !text.is_empty())?;
    // What does not fit is more than any capacity.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().unwrap_or(u64::MAX))
}

/// Reads which requests count: a word, or a list of statuses.
pub(super) fn read_count(given: Field<'_>) -> Result<Count, Error> {
    if given.as_text().is_some() {
        return Ok(given.choose(COUNTS)?());
    }
    let expected = "\"all\", \"failures\", \"successes\", \"served\", or a list of statuses such as [401, 403]";
    let statuses = given.as_list("status").ok_or_else(|| given.wrong(expected))?;
    if statuses.is_empty() {
        let message = "count is an empty list, so this policy limits nothing: give at least one status";
        return Err(given.error(message));
    }
    let statuses = statuses.into_iter().map(read_status);
    Ok(Count::statuses(statuses.collect::<Result<Vec<_>, _>>()?))
}

/// Reads a status from 100 to 999.
fn read_status(given: Field<'_>) -> Result<StatusCode, Error> {
    let number = given.whole()?;
    let status = u16::try_from(number).ok().and_then(|number| StatusCode::from_u16(number).ok());
    status.ok_or_else(|| given.error(format!("status {number} is not allowed: give 100 to 999")))
}

/// The policy, with units kept for critical requests.
pub(super) fn with_reserve(policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    let share = table.get("reserve");
    let units = share.map(|share| share.fraction()).transpose()?;
    let critical = table.get("critical").map(read_critical).transpose()?;
    match (share.zip(units), critical) {
        (None, None) => Ok(policy),
        (Some((share, units)), Some((_, header, value))) => {
            let is_critical = move |parts: &Parts| only(&parts.headers, &header) == Ok(Some(value.as_bytes()));
            policy.try_reserve(units, is_critical).map_err(|error| share.error(error))
        }
        (Some((share, _)), None) => {
            Err(share.error("reserve has no critical requests: add critical = { header = \"...\", value = \"...\" }"))
        }
        (None, Some((critical, ..))) => {
            Err(critical.error("critical has no effect without a reserve: add a line reserve = 0.2"))
        }
    }
}

/// The field, and the header and its value that make a request critical.
pub(super) fn read_critical(given: Field<'_>) -> Result<(Field<'_>, HeaderName, String), Error> {
    let table = given.table("a table such as { header = \"x-priority\", value = \"high\" }")?;
    let table = table.only(&["header", "value"])?;
    let header = table.required("header", "missing field `header`: add header = \"...\" to critical")?;
    let value = table.required("value", "missing field `value`: add value = \"...\" to critical")?;
    value.check_header_value("critical", value.text()?)?;
    Ok((given, header.header_name("critical", header.text()?)?, value.text()?.to_owned()))
}
