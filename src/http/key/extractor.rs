//! The trait of key extractors, and its implementation for closures.
//!
//! A policy owns one extractor, and calls it with the head of each request that it applies to. Only
//! [`extract`](KeyExtractor::extract) is required. The other methods are for lists, lookups and the status service,
//! and have defaults that are safe: no entry of a list is ruled out, and no key is taken as proven.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;

use super::bannable::Bannable;
#[cfg(feature = "axum")]
use super::client_settings::ClientSettings;
use super::extracted::Extracted;
use super::list_entry::ListEntry;
use super::missing::MissingKey;
use super::needs::Needs;
use super::of_value;
use crate::core::{Answer, Error, Key};
use crate::lookup::RawValues;

/// Extracts the key that identifies the client of a request.
///
/// Closures over `&Parts` are extractors if they return a [`Key`], a `String` or a `&'static str`, an `Option` of one
/// of them, a `Result` as [`from_fn`](super::from_fn) describes it, or an [`Extracted`]. For keys that have to be
/// waited for there is [`lookup`](super::lookup), which protects the database it queries.
///
/// # Examples
///
/// A type that is an extractor, and that checks which entries of lists can match its keys:
///
/// ```
/// use std::borrow::Cow;
///
/// use http::request::Parts;
/// use tollgate::Key;
/// use tollgate::key::{Extracted, KeyExtractor, ListEntry};
/// use tollgate::store::Answer;
///
/// /// Clients by their version, in a header that the application's gateway sets: `1` to `9`.
/// struct ClientVersion;
///
/// fn is_version(value: &[u8]) -> bool {
///     matches!(value, [b'1'..=b'9'])
/// }
///
/// impl KeyExtractor for ClientVersion {
///     fn extract(&self, parts: &Parts) -> Answer<Extracted> {
///         let version = parts.headers.get("x-version").map(|value| value.as_bytes());
///         let version = version.filter(|value| is_version(value));
///         Answer::Ready(version.map(|value| Key::new("version", value)).into())
///     }
///
///     fn can_match(&self, entry: ListEntry<'_>) -> bool {
///         match entry {
///             ListEntry::Value(value) | ListEntry::ValueOf("version", value) => is_version(value),
///             _ => false,
///         }
///     }
///
///     fn kind(&self) -> Option<Cow<'_, str>> {
///         Some("version".into())
///     }
/// }
///
/// let (parts, ()) = http::Request::get("/").header("x-version", "3").body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = ClientVersion.extract(&parts) else { panic!("there is a version") };
/// assert_eq!(key.as_str(), "version:3");
/// assert!(!ClientVersion.can_match(ListEntry::Value(b"10")));
/// assert_eq!(ClientVersion.key_of(&[b"3"]).expect("a version"), key);
/// # Ok::<(), http::Error>(())
/// ```
pub trait KeyExtractor: Send + Sync + 'static {
    /// Extracts the key, at once or with a future.
    ///
    /// # Cancellation
    ///
    /// A future is polled only if no policy whose key is known at once refuses the request, and only for as long as
    /// the [budget](crate::RateLimitLayer::budget) allows. It may be dropped before it is ready, also unpolled.
    fn extract(&self, parts: &Parts) -> Answer<Extracted>;

    /// Returns the rule for requests without a key, for policies that do not [set](crate::Policy::missing_key) one.
    ///
    /// By default the policy does not apply to them.
    fn missing_key(&self) -> MissingKey {
        MissingKey::Skip
    }

    /// Returns the client's address, if this extractor has it; by default it has none.
    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }

    /// Returns the client's address, if the keys of this extractor contain it; by default they do not.
    ///
    /// If such a key is [ambiguous](Extracted::Ambiguous), the requests of one address share a counter, as the rest of
    /// the key cannot change that; otherwise all ambiguous requests share one.
    fn address_in_key(&self, parts: &Parts) -> Option<IpAddr> {
        let _ = parts;
        None
    }

    /// Whether an entry of an [allow](crate::Policy::allow) list or a [deny](crate::Policy::deny) list can match some
    /// request, by its key, by a part of its key, or by an address that this extractor has.
    ///
    /// A layer is not built with a policy whose list has an entry that cannot. By default every entry can, which is
    /// what an extractor returns that cannot rule one out.
    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        let _ = entry;
        true
    }

    /// Offers the values that the key of this request may contain a hash of, for lookups by the key; where the key is
    /// [ambiguous](Extracted::Ambiguous), every value that the application may read in its place.
    ///
    /// Called only for a lookup (see [`Lookup::raw`](crate::Lookup::raw)), and for an ambiguous request of a policy
    /// that [denies](crate::Policy::deny) values. By default nothing is offered: such a lookup has no raw value, and
    /// such a request is refused.
    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        let _ = (parts, offered);
    }

    /// Adds the keys of this request to `found`: of a joined key those of the parts that the request has.
    ///
    /// Called only for a request without a key, of a policy that [denies](crate::Policy::deny) values, so that no
    /// client passes the list by leaving out another part of a joined key. Nothing is looked up for it: by default the
    /// key is added if [`extract`](Self::extract) returns it at once.
    fn keys(&self, parts: &Parts, found: &mut Vec<Key>) {
        match self.extract(parts) {
            Answer::Ready(Extracted::Key(key)) => found.push(key),
            Answer::Ready(Extracted::Secret(secret)) => found.push(secret.key().clone()),
            _ => {}
        }
    }

    /// Whether no client can get another client's key by what it writes into a request: the key comes from the
    /// connection or from the server, or does not identify a client.
    ///
    /// A [status service](crate::RateLimitLayer::status_service) that is open to all shows only policies with such
    /// keys. By default a key is not proven.
    fn is_proven(&self) -> bool {
        false
    }

    /// Returns what the keys need of the server, for warnings of the layer. By default nothing is known.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Returns this extractor with the settings of the layer's client where it is by the client's address and has none;
    /// `None` if it is by something else.
    ///
    /// # Errors
    ///
    /// If it has settings that contradict the layer's.
    #[cfg(feature = "axum")]
    #[doc(hidden)]
    fn bound_to(&self, layer: &ClientSettings) -> Result<Option<Arc<dyn KeyExtractor>>, Error> {
        let _ = layer;
        Ok(None)
    }

    /// Returns whom a [ban](crate::Ban) by this key refuses, which decides whether a policy with this key may have one.
    ///
    /// By default clients may choose the key, which is safe.
    fn bannable(&self) -> Bannable {
        Bannable::Claimed
    }

    /// Returns the kind of all keys of this extractor, as their text has it before the colon: `header x-api-key`, say.
    ///
    /// By it a [limiter](crate::RateLimitLayer::limiter) of the layer finds the policies that a key is for. By default
    /// it is not known, as of closures: such a policy has to be [named](crate::Limiter::only).
    fn kind(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// Returns the key of a request that has these values: one, or one for each part of a joined key.
    /// [`Policy::key_of`](crate::Policy::key_of) calls it.
    ///
    /// By default it is the key that [`Key::new`] makes, if the [kind](Self::kind) is known.
    ///
    /// # Errors
    ///
    /// If the kind is not known, or [no request can have](Self::can_match) such a key.
    fn key_of(&self, values: &[&[u8]]) -> Result<Key, Error> {
        let kind = self.kind().ok_or_else(of_value::unknown)?;
        of_value::of_one(&kind, values, |value| {
            self.can_match(ListEntry::ValueOf(&kind, value)).then(|| Key::new(&kind, value))
        })
    }

    /// Joins this key with another's: each pair has a counter of its own.
    ///
    /// A request without one of the two has no joined key.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{self, Extracted, KeyExtractor};
    /// use tollgate::store::Answer;
    ///
    /// let by_tenant_and_method = key::header("x-tenant").plain().and(key::method());
    ///
    /// let (parts, ()) = http::Request::get("/").header("x-tenant", "acme").body(())?.into_parts();
    /// let Answer::Ready(Extracted::Key(key)) = by_tenant_and_method.extract(&parts) else { panic!("it has both") };
    /// assert_eq!(key.as_str(), "header x-tenant+method:acme|GET");
    /// # Ok::<(), http::Error>(())
    /// ```
    fn and<K: KeyExtractor>(self, other: K) -> Join
    where
        Self: Sized,
    {
        Join { first: Arc::new(self), second: Arc::new(other) }
    }
}

impl<F, R> KeyExtractor for F
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: Into<Extracted>,
{
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        Answer::Ready(self(parts).into())
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        entry.is_value()
    }
}

impl KeyExtractor for Arc<dyn KeyExtractor> {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        (**self).extract(parts)
    }

    fn missing_key(&self) -> MissingKey {
        (**self).missing_key()
    }

    fn address(&self, parts: &Parts) -> Option<IpAddr> {
        (**self).address(parts)
    }

    fn address_in_key(&self, parts: &Parts) -> Option<IpAddr> {
        (**self).address_in_key(parts)
    }

    fn can_match(&self, entry: ListEntry<'_>) -> bool {
        (**self).can_match(entry)
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        (**self).raw_values(parts, offered);
    }

    fn keys(&self, parts: &Parts, found: &mut Vec<Key>) {
        (**self).keys(parts, found);
    }

    fn is_proven(&self) -> bool {
        (**self).is_proven()
    }

    fn needs(&self) -> Needs {
        (**self).needs()
    }

    #[cfg(feature = "axum")]
    fn bound_to(&self, layer: &ClientSettings) -> Result<Option<Arc<dyn KeyExtractor>>, Error> {
        (**self).bound_to(layer)
    }

    fn bannable(&self) -> Bannable {
        (**self).bannable()
    }

    fn kind(&self) -> Option<Cow<'_, str>> {
        (**self).kind()
    }

    fn key_of(&self, values: &[&[u8]]) -> Result<Key, Error> {
        (**self).key_of(values)
    }
}

/// An extractor of pairs of two keys.
///
/// Made by [`KeyExtractor::and`], which has an example. Both extractors run for each request, and what is not ready is
/// waited for at the same time.
#[derive(Clone)]
#[must_use]
pub struct Join {
    pub(super) first: Arc<dyn KeyExtractor>,
    pub(super) second: Arc<dyn KeyExtractor>,
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").finish_non_exhaustive()
    }
}

/// Returns a key with the settings of the layer's client where it has none of its own.
///
/// # Errors
///
/// If it has settings that contradict the layer's.
#[cfg(feature = "axum")]
pub(crate) fn bound(key: &Arc<dyn KeyExtractor>, layer: &ClientSettings) -> Result<Arc<dyn KeyExtractor>, Error> {
    Ok(key.bound_to(layer)?.unwrap_or_else(|| Arc::clone(key)))
}
