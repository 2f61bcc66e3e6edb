//! The rule for requests without a key.
//!
//! Each extractor has a default, which a policy may override. The rule must leave no client a way to avoid its
//! counter: that is why an ambiguous key is handled apart from a missing one.

/// What a policy does with a request whose key is missing or ambiguous.
///
/// An [ambiguous](super::Extracted::Ambiguous) key is never skipped and never gets a fresh counter; otherwise a client
/// could escape its limit by sending a header twice. Requests with an ambiguous key are refused, or share one counter
/// of the policy, with the policy's own quota, apart from requests without a key. If the extractor has the client's
/// address, as a joined key with `client_ip` does, they share one counter for each address (IPv4) or /56 prefix (IPv6).
///
/// # Examples
///
/// ```
/// use tollgate::{MissingKey, Policy, Quota, key};
///
/// // Requests without an API key are refused with 403.
/// let policy = Policy::new("api", Quota::per_minute(100))
///     .key(key::header("x-api-key"))
///     .missing_key(MissingKey::Deny);
/// # let _ = policy;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissingKey {
    /// The policy does not limit requests without a key; those with an ambiguous key are counted together.
    Skip,
    /// The request is refused: with 403 if it has no key, with 400 if its key is ambiguous.
    Deny,
    /// Requests without a key are counted together; those with an ambiguous key are counted together, apart from them.
    Share,
}
