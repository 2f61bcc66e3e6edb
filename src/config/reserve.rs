//! Units kept for critical requests.

use http::HeaderName;
use http::request::Parts;
use toml::Spanned;

use super::document::{CriticalTable, PolicyTable};
use super::fault::Fault;
use super::header::{header_name, normal_value};
use super::values::Fraction;
use crate::Policy;
use crate::http::key::field_value::only;

pub(super) fn with_reserve(policy: Policy, table: &PolicyTable) -> Result<Policy, Fault> {
    match (&table.reserve, &table.critical) {
        (None, None) => Ok(policy),
        (Some(share), Some(critical)) => with(policy, share, critical.get_ref()),
        (Some(share), None) => {
            let message = "reserve is kept for nobody: add critical = { header = \"...\", value = \"...\" }";
            Err(Fault::at(share.span(), message))
        }
        (None, Some(critical)) => {
            Err(Fault::at(critical.span(), "critical has no effect without a reserve: add a line reserve = 0.2"))
        }
    }
}

fn with(policy: Policy, share: &Spanned<Fraction>, critical: &CriticalTable) -> Result<Policy, Fault> {
    let header = header_name("critical", critical.header.span(), critical.header.get_ref())?;
    let value = normal_value("critical", critical.value.span(), critical.value.get_ref())?.to_owned();
    let reserved = policy.try_reserve(share.get_ref().0, move |parts| has(parts, &header, &value));
    reserved.map_err(|error| Fault::at(share.span(), error.to_string()))
}

fn has(parts: &Parts, header: &HeaderName, value: &str) -> bool {
    only(&parts.headers, header) == Ok(Some(value.as_bytes()))
}
