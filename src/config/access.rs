//! Clients to allow and to deny.

use super::Server;
use super::document::{Clients, PolicyTable};
use super::fault::Fault;
use super::keys::DynKey;
use super::lists::{Client, ValueTable};
use crate::http::policy::advice;
use crate::{AccessList, Policy};

pub(super) fn with_lists(policy: Policy, table: &PolicyTable) -> Result<Policy, Fault> {
    let policy = with(policy, "allow", table.allow.as_ref(), Policy::allow)?;
    let Some(serves) = table.serve_unknown_addresses.as_ref().filter(|serves| *serves.get_ref()) else {
        return with(policy, "deny", table.deny.as_ref(), Policy::deny);
    };
    if table.deny.is_none() {
        let message = "serve_unknown_addresses has no effect without a list deny: add it, or leave the line out";
        return Err(Fault::at(serves.span(), message));
    }
    with(policy, "deny", table.deny.as_ref(), |policy, list| policy.deny(list.serve_unknown_addresses()))
}

/// The key of a policy with lists: it tells the client's address where the key itself does not.
pub(super) fn with_address(key: DynKey, table: &PolicyTable, server: &Server) -> DynKey {
    #[cfg(feature = "axum")]
    if table.allow.is_some() || table.deny.is_some() {
        return std::sync::Arc::new(super::addressed::Addressed { key, client: server.client().clone() });
    }
    let _ = (table, server);
    key
}

fn with(
    policy: Policy,
    what: &str,
    clients: Option<&Clients>,
    set: impl FnOnce(Policy, AccessList) -> Policy,
) -> Result<Policy, Fault> {
    let Some(clients) = clients else { return Ok(policy) };
    let mut all = AccessList::default();
    for client in &clients.get_ref().0 {
        let list = read(AccessList::default(), client.get_ref());
        let list = list.map_err(|error| Fault::at(client.span(), format!("{what}{error}")))?;
        if let Some((_, is_address)) = list.idle(|entry| policy.extractor().can_match(entry)) {
            let message = format!("{what} has an entry that can never match: {}", advice(is_address));
            return Err(Fault::at(client.span(), message));
        }
        all = read(all, client.get_ref()).expect("it was read");
    }
    Ok(set(policy, all))
}

/// Adds a client to a list; the error goes on after the name of the list.
fn read(list: AccessList, client: &Client) -> Result<AccessList, String> {
    match client {
        Client::Text(text) if text.is_empty() => {
            Err(" has an empty entry: give a CIDR or the value of a key".to_owned())
        }
        Client::Text(text) => list.entry(text).map_err(|error| format!(": {error}")),
        Client::Value(ValueTable { value, key: None }) => Ok(list.key(value)),
        Client::Value(ValueTable { value, key: Some(key) }) => Ok(list.key_of(&kind(key), value)),
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
