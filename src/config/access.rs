//! Clients to allow and to deny: the fields `allow`, `deny` and `serve_unknown_addresses` of a policy.
//!
//! A policy and its table come in, and the policy with its lists goes out. An entry is an address, a network or the
//! value of a key. One that the policy's key can never match is an error here, with its place in the file, as a list
//! that has no effect would go unnoticed.

use super::document::{Field, Table};
use crate::core::Error;
use crate::http::policy::advice;
use crate::http::{AccessList, Policy};

/// Adds the lists of a table to its policy, whose key must have been set before.
///
/// # Errors
///
/// If an entry is malformed or can never match, or if `serve_unknown_addresses` has no list to act on.
pub(super) fn with_lists(policy: Policy, table: Table<'_>) -> Result<Policy, Error> {
    let policy = with(policy, table.get("allow"), Policy::allow)?;
    match (table.get("deny"), table.switched_on("serve_unknown_addresses")?) {
        (deny, None) => with(policy, deny, Policy::deny),
        (None, Some(serves)) => {
            let message = "serve_unknown_addresses has no effect without a list deny: add it, or leave the line out";
            Err(serves.error(message))
        }
        (deny, Some(_)) => with(policy, deny, |policy, list| policy.deny(list.serve_unknown_addresses())),
    }
}

/// Adds one list, if it is given, by `set`.
fn with(
    policy: Policy,
    given: Option<Field<'_>>,
    set: impl FnOnce(Policy, AccessList) -> Policy,
) -> Result<Policy, Error> {
    let Some(given) = given else { return Ok(policy) };
    let mut all = AccessList::default();
    if given.as_list("client").is_some_and(|clients| clients.is_empty()) {
        return Err(given.error(format!("{} is an empty list: give at least one entry, or leave it out", given.name)));
    }
    for client in given.texts("client")? {
        let list = read(AccessList::default(), given.name, client)?;
        if let Some((_, is_address)) = list.idle(policy.extractor()) {
            let message = format!("{} has an entry that can never match: {}", given.name, advice(is_address));
            return Err(client.error(message));
        }
        all = read(all, given.name, client)?;
    }
    Ok(set(policy, all))
}

/// Adds a client to the list of this name: an address, a network, or the value of a key.
fn read(list: AccessList, name: &str, client: Field<'_>) -> Result<AccessList, Error> {
    match client.as_text() {
        Some("") => Err(client.error(format!("{name} has an empty entry: give a CIDR or the value of a key"))),
        Some(text) => list.entry(text).map_err(|error| client.error(format!("{name}: {error}"))),
        None => read_value(list, client),
    }
}

/// Adds the value of a key, or of the keys of a name, whatever it looks like.
fn read_value(list: AccessList, client: Field<'_>) -> Result<AccessList, Error> {
    let table = client.table("a string, or a table such as { value = \"a\", key = \"header:x-api-key\" }")?;
    let table = table.only(&["value", "key"])?;
    let value = table.required("value", "missing field `value`: add value = \"...\"")?.text()?;
    match table.get("key") {
        Some(key) => Ok(list.key_of(&kind(key.text()?), value)),
        None => Ok(list.key(value)),
    }
}

/// The kind of the keys that have this name in files.
fn kind(key: &str) -> String {
    match key.split_once(':') {
        Some(("header", name)) => format!("header {}", name.to_ascii_lowercase()),
        Some((word, name)) => format!("{word} {name}"),
        None if key == "client_ip" || key == "peer_ip" => "ip".to_owned(),
        None => key.to_owned(),
    }
}
