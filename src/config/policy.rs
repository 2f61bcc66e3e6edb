//! A `[[policy]]` table as a policy.

use std::sync::Arc;

use toml::Spanned;

use super::Server;
use super::access::{with_address, with_lists};
use super::cost::with_cost;
use super::document::PolicyTable;
use super::fault::{Fault, choose};
use super::keys::{DynKey, read_key};
use super::quota::{read_quota, with_tiers};
use super::reserve::with_reserve;
use super::scope::with_scope;
use crate::{MissingKey, Policy, key};

const MISSING_KEY: &[(&str, MissingKey)] =
    &[("skip", MissingKey::Skip), ("deny", MissingKey::Deny), ("share", MissingKey::Share)];

pub(super) fn read_policy(table: &Spanned<PolicyTable>, server: &Server) -> Result<Policy, Fault> {
    let fields = table.get_ref();
    let name = required(table, fields.name.as_ref(), "name = \"...\"")?;
    let policy = Policy::try_new(name.get_ref(), read_quota(table)?);
    let policy = policy.map_err(|error| Fault::at(name.span(), error.to_string()))?;
    let policy = with_key(policy, fields, server)?;
    let policy = with_lists(policy, fields)?;
    let policy = with_scope(policy, fields)?;
    let policy = with_cost(policy, fields)?;
    let policy = with_tiers(policy, fields)?;
    let policy = with_reserve(policy, fields)?;
    Ok(with_switches(policy, fields))
}

fn with_key(policy: Policy, fields: &PolicyTable, server: &Server) -> Result<Policy, Fault> {
    let key = fields.key.as_ref().map(|key| read_key(key, server)).transpose()?;
    let key: DynKey = key.unwrap_or_else(|| Arc::new(key::global()));
    let policy = policy.key(with_address(key, fields, server));
    match &fields.missing_key {
        Some(rule) => Ok(policy.missing_key(choose("missing_key", rule, MISSING_KEY)?)),
        None => Ok(policy),
    }
}

fn with_switches(policy: Policy, fields: &PolicyTable) -> Policy {
    let set = |policy: Policy, is_set: bool, switch: fn(Policy) -> Policy| if is_set { switch(policy) } else { policy };
    let policy = set(policy, fields.advertise == Some(false), Policy::unadvertised);
    let policy = set(policy, fields.shadow == Some(true), Policy::shadow);
    let policy = set(policy, fields.metered == Some(true), Policy::metered);
    set(policy, fields.refund_dropped == Some(true), Policy::refund_dropped)
}

pub(super) fn required<'a, T>(
    table: &Spanned<PolicyTable>,
    field: Option<&'a Spanned<T>>,
    line: &str,
) -> Result<&'a Spanned<T>, Fault> {
    field.ok_or_else(|| {
        let (name, _) = line.split_once(' ').unwrap_or((line, ""));
        Fault::at(table.span(), format!("this policy has no {name}: add a line {line}"))
    })
}
