//! What requests cost, and which of them count.

use http::request::Parts;
use http::{HeaderName, StatusCode};
use toml::Spanned;

use super::document::PolicyTable;
use super::fault::{Fault, choose_word};
use super::header::from_header;
use super::lists::OneOrMany;
use super::values::{CostText, Whole};
use crate::http::key::field_value::{lines, trimmed};
use crate::{Count, Policy};

/// Makes a count.
type Make = fn() -> Count;

const COUNTS: &[(&str, Make)] = &[("all", Count::all), ("failures", Count::failures), ("successes", Count::successes)];

pub(super) fn with_cost(mut policy: Policy, table: &PolicyTable) -> Result<Policy, Fault> {
    if let Some(cost) = &table.cost {
        policy = match cost.get_ref() {
            CostText::Units(units) => policy.cost(*units),
            CostText::From(place) => {
                let header = from_header("cost", cost.span(), place)?;
                policy.cost_by(move |parts| said(parts, &header))
            }
        };
    }
    match &table.count {
        Some(count) => Ok(policy.count(read_count(count)?)),
        None => Ok(policy),
    }
}

/// The units a request's header says, or 1; of several lines, which proxies may have made one with commas, the most
/// that one says.
fn said(parts: &Parts, header: &HeaderName) -> u64 {
    let joined = lines(&parts.headers, header);
    joined.flat_map(|line| line.split(|byte| *byte == b',')).map(units).max().unwrap_or(1)
}

fn units(line: &[u8]) -> u64 {
    let text = str::from_utf8(trimmed(line)).unwrap_or_default();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return 1;
    }
    // All digits: what does not fit is more than any capacity.
    text.parse().unwrap_or(u64::MAX)
}

fn read_count(given: &Spanned<OneOrMany<Whole>>) -> Result<Count, Fault> {
    match given.get_ref() {
        OneOrMany::One(word) => Ok(choose_word("count", given.span(), word, COUNTS)?()),
        OneOrMany::Many(statuses) if statuses.is_empty() => {
            let message = "count is an empty list, so this policy limits nothing: give at least one status";
            Err(Fault::at(given.span(), message))
        }
        OneOrMany::Many(statuses) => {
            let statuses = statuses.iter().map(read_status);
            Ok(Count::statuses(statuses.collect::<Result<Vec<_>, _>>()?))
        }
    }
}

fn read_status(given: &Spanned<Whole>) -> Result<StatusCode, Fault> {
    let Whole(number) = *given.get_ref();
    let status = u16::try_from(number).ok().and_then(|number| StatusCode::from_u16(number).ok());
    status.ok_or_else(|| Fault::at(given.span(), format!("status {number} is not allowed: give 100 to 999")))
}
