//! What is known of the keys of an extractor before there is a request.

use std::any::TypeId;
use std::borrow::Cow;

use super::extractor::Joined;

/// What is known of the keys of an extractor before there is a request: [`KeyExtractor::info`] returns it.
///
/// The defaults are safe: the kind is not known, the policy does not apply to requests without a key, and clients choose
/// their keys.
///
/// [`KeyExtractor::info`]: super::KeyExtractor::info
///
/// # Examples
///
/// ```
/// use tollgate::policy::MissingKey;
/// use tollgate::key::{self, KeyExtractor, KeyInfo};
///
/// let info = KeyInfo::new("device").missing_key(MissingKey::Deny);
/// assert_eq!((info.kind.as_deref(), info.unforgeable), (Some("device"), false));
///
/// assert!(key::method().info().unforgeable);
/// assert_eq!((key::bearer(), key::method()).info().kind.as_deref(), Some("bearer+method"));
/// ```
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is known by itself")]
#[must_use]
#[non_exhaustive]
pub struct KeyInfo {
    /// The kind of all keys, as their text has it before the colon, such as `header x-api-key`; `None` if it is not known,
    /// as for closures.
    ///
    /// A [limiter](crate::LiveLayer::limiter) of the layer finds the policies that a key is for by its kind. A policy
    /// with keys of an unknown kind has to be [named](crate::Limiter::only).
    pub kind: Option<Cow<'static, str>>,
    /// The rule for requests without a key, for policies that do not [set](crate::Policy::missing_key) one.
    pub missing_key: MissingKey,
    /// Whether no client can get another client's key by what it writes into a request: the key comes from the
    /// connection or from the server, or does not identify a client.
    ///
    /// A [status service](crate::LiveLayer::status_service) that is open to all shows only policies with such keys, and only
    /// with such keys, or with those that are [verified](crate::Ban::of_verified_keys) before, may a policy have a
    /// [ban](crate::Ban).
    pub unforgeable: bool,
    /// Whether keys contain the [address](super::KeyExtractor::address) of the client.
    ///
    /// If such a key is [ambiguous](super::Extracted::Ambiguous), the requests of one address share a counter, as the
    /// rest of the key cannot change that. Otherwise all ambiguous requests share one.
    pub address_in_key: bool,
    /// Whom a ban by such a key refuses, which decides whether a policy may have one.
    pub(crate) bannable: Bannable,
    /// The parts of a tuple, and its type.
    pub(super) joined: Option<(TypeId, Joined)>,
    /// Whether there is no key without the address at the other end of the connection.
    pub(crate) needs_peer: bool,
    /// Whether keys contain the template of the route that matched.
    pub(crate) needs_route: bool,
}

impl KeyInfo {
    /// Describes keys of a kind.
    pub fn new(kind: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: Some(kind.into()), ..Self::default() }
    }

    /// Sets the rule for requests without a key, instead of [`MissingKey::Skip`].
    pub fn missing_key(self, rule: MissingKey) -> Self {
        Self { missing_key: rule, ..self }
    }

    /// Declares that no client can get the key of another one: see [`unforgeable`](field@Self::unforgeable).
    pub fn unforgeable(self) -> Self {
        let bannable = if self.bannable == Bannable::Claimed { Bannable::Client } else { self.bannable };
        Self { unforgeable: true, bannable, ..self }
    }

    /// Declares that a key does not identify a client, as a method or a route does not: a policy may have no
    /// [ban](crate::Ban) by it, which would be one of all clients.
    pub fn shared(self) -> Self {
        Self { bannable: Bannable::Shared, ..self }
    }

    /// Declares that keys contain the address: see [`address_in_key`](field@Self::address_in_key).
    pub fn address_in_key(self) -> Self {
        Self { address_in_key: true, ..self }
    }

    /// Describes keys that are joined of these and others.
    pub(super) fn and(self, other: Self) -> Self {
        let kind = self.kind.zip(other.kind).map(|(first, second)| format!("{first}+{second}").into());
        Self {
            kind,
            missing_key: self.missing_key.and(other.missing_key),
            bannable: self.bannable.and(other.bannable),
            joined: None,
            unforgeable: self.unforgeable && other.unforgeable,
            address_in_key: self.address_in_key || other.address_in_key,
            needs_peer: self.needs_peer || other.needs_peer,
            needs_route: self.needs_route || other.needs_route,
        }
    }
}

/// What a policy does with a request whose key is missing or ambiguous.
///
/// An [ambiguous](super::Extracted::Ambiguous) key is never skipped and never gets a fresh counter; otherwise a client
/// could escape its limit by sending a header twice. Requests with an ambiguous key are refused, or share one counter
/// of the policy, with the policy's own quota, apart from requests without a key. If the extractor has the client's
/// address, as a tuple with `client_ip` does, they share one counter for each address (IPv4) or /56 prefix (IPv6).
///
/// # Examples
///
/// ```
/// use tollgate::policy::MissingKey;
/// use tollgate::{Policy, Quota, key};
///
/// // Requests without an API key are refused with 403.
/// let policy = Policy::new("api", Quota::per_minute(100))
///     .key(key::header("x-api-key"))
///     .missing_key(MissingKey::Deny);
/// # let _ = policy;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// The policy does not limit requests without a key; those with an ambiguous key are counted together.
    #[default]
    Skip,
    /// The request is refused: with 403 if it has no key, with 400 if its key is ambiguous.
    Deny,
    /// Requests without a key are counted together; those with an ambiguous key are counted together, apart from them.
    Share,
}

impl MissingKey {
    /// Returns the rule for a pair of keys: a pair must not escape a limit that one of them would not.
    fn and(self, other: Self) -> Self {
        [Self::Deny, Self::Share].into_iter().find(|rule| [self, other].contains(rule)).unwrap_or(Self::Skip)
    }
}

/// Whom a [ban](crate::Ban) by a key refuses, besides the client whose requests provoked it.
///
/// A policy with a ban is an error when it is given to a layer, if others could have a client banned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Bannable {
    /// The client itself, and those who share its address or account: the key comes from the connection, from trusted
    /// proxies or from the server.
    Client,
    /// Perhaps somebody else: clients choose the key, so one could send that of another. A ban is accepted if it says
    /// that keys are [verified](crate::Ban::of_verified_keys) before.
    #[default]
    Claimed,
    /// Perhaps somebody else: the address is in a header that anyone may write.
    Spoofable,
    /// All clients, as they share the key.
    Shared,
}

impl Bannable {
    /// Returns whom a ban by a pair of this key and another one refuses.
    ///
    /// A client that cannot choose one part cannot have the pair of another client. An address that it can choose is
    /// none to rely on, whatever the other part is.
    fn and(self, other: Self) -> Self {
        let of_either = |whom: &Self| [self, other].contains(whom);
        [Self::Spoofable, Self::Client, Self::Claimed].into_iter().find(of_either).unwrap_or(Self::Shared)
    }
}
