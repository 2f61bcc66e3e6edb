//! A key for lists of addresses.
//!
//! A key that is a header, for example, has no client's address, which `allow` and `deny` may name. This
//! key extracts the same as the policy's own key, and takes the address from the server's `client_ip` where the
//! own one has none. Only `access` makes it.

use std::borrow::Cow;
use std::net::IpAddr;

use http::request::Parts;

use super::keys::DynKey;
use crate::core::{Error, Key};
use crate::http::MissingKey;
use crate::http::key::{Bannable, ClientIp, Extracted, Forwarding, Inputs, KeyExtractor, ListEntry};
use crate::lookup::RawValues;
use crate::store::Answer;

/// A key, and how else the client's address is known.
pub(super) struct Addressed {
    /// The policy's own key, which identifies who is counted.
    pub(super) key: DynKey,
    /// How the server determines a client's address.
    pub(super) client: ClientIp,
}

impl KeyExtractor for Addressed {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        self.key.extract(parts)
    }

    fn missing_key(&self) -> MissingKey {
        self.key.missing_key()
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        self.key.address(parts).or_else(|| self.client.address(parts))
    }

    fn address_in_key(&self, parts: &Parts) -> Option<IpAddr> {
        self.key.address_in_key(parts)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        self.key.raw_values(parts, offered);
    }

    fn keys(&self, parts: &Parts, found: &mut Vec<Key>) {
        self.key.keys(parts, found);
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        matches!(entry, ListEntry::Net(_)) || self.key.can_match(entry)
    }

    fn is_proven(&self) -> bool {
        self.key.is_proven()
    }

    fn lacks_peer(&self, parts: &Parts) -> bool {
        self.key.lacks_peer(parts)
    }

    fn forwarding(&self, parts: &Parts) -> Forwarding {
        self.key.forwarding(parts)
    }

    fn inputs(&self) -> Inputs {
        self.key.inputs()
    }

    fn bannable(&self) -> Bannable {
        self.key.bannable()
    }

    fn kind(&self) -> Option<Cow<'_, str>> {
        self.key.kind()
    }

    fn key_of(&self, values: &[&[u8]]) -> Result<Key, Error> {
        self.key.key_of(values)
    }
}
