//! Clients to allow and to deny.

use super::Server;
use super::document::{PolicyTable, Texts};
use super::fault::Fault;
use super::keys::DynKey;
use crate::policy::advice;
use crate::{AccessList, Policy};

pub(super) fn with_lists(policy: Policy, table: &PolicyTable) -> Result<Policy, Fault> {
    let policy = with(policy, "allow", table.allow.as_ref(), Policy::allow)?;
    with(policy, "deny", table.deny.as_ref(), Policy::deny)
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
    entries: Option<&Texts>,
    set: fn(Policy, AccessList) -> Policy,
) -> Result<Policy, Fault> {
    let Some(entries) = entries else { return Ok(policy) };
    for entry in &entries.get_ref().0 {
        if entry.get_ref().is_empty() {
            return Err(Fault::at(
                entry.span(),
                format!("{what} has an empty entry: give a CIDR or the value of a key"),
            ));
        }
        let list = AccessList::parse([entry.get_ref().as_str()])
            .map_err(|error| Fault::at(entry.span(), format!("{what}: {error}")))?;
        if let Some((_, is_address)) = list.idle(|entry| policy.extractor().can_match(entry)) {
            let message = format!("{what} has an entry that can never match: {}", advice(is_address));
            return Err(Fault::at(entry.span(), message));
        }
    }
    let entries = entries.get_ref().0.iter().map(|entry| entry.get_ref().as_str());
    Ok(set(policy, AccessList::parse(entries).expect("each entry was read")))
}
