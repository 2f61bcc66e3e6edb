//! Extracts the bearer token: <https://www.rfc-editor.org/rfc/rfc6750#section-2.1>.
//!
//! A token is a secret, so its key always holds a hash of it. Lookups receive the token itself as a raw value.
//! Nothing here verifies a token: it only identifies who sent it.

use std::fmt;

use http::request::Parts;

use super::authorization::{credentials, is_one};
use super::reading::{Pick, carried};
use super::{Extracted, Key, KeyExtractor, KeyInfo, Kind};
use crate::core::Answer;
use crate::lookup::RawValues;

const SCHEME: &str = "Bearer";

static KIND: Kind = Kind::fixed("bearer:");

/// The extractor that [`bearer`] returns.
#[derive(Clone, Copy, Debug)]
struct Bearer;

/// Identifies clients by the token of `Authorization: Bearer`; only a hash of it leaves the process.
///
/// A request without the header, or with another scheme, has no key; an empty token is a value like any other. A
/// token with white space or a comma inside is [ambiguous](Extracted::Ambiguous), and so is one beside another
/// `Authorization` line that differs.
///
/// The client chooses the token: each one it makes up starts a counter of its own, unless a layer outside of this one
/// has verified it.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, KeyExtractor};
/// use tollgate::store::Answer;
///
/// let request = http::Request::get("/").header("authorization", "Bearer s3cret");
/// let (parts, ()) = request.body(())?.into_parts();
/// let Answer::Ready(Extracted::Key(key)) = key::bearer().extract(&parts) else { panic!("there is a token") };
/// assert!(key.as_str().starts_with("bearer:#") && !key.as_str().contains("s3cret"));
/// # Ok::<(), http::Error>(())
/// ```
#[must_use]
pub fn bearer() -> impl KeyExtractor + Copy + fmt::Debug {
    Bearer
}

impl KeyExtractor for Bearer {
    fn extract(&self, parts: &Parts) -> Answer<Extracted> {
        let token = credentials(parts, SCHEME, Pick::Same);
        Answer::Ready(token.map(|found| found.map(|token| KIND.hashed(token))).into())
    }

    fn info(&self) -> KeyInfo {
        KeyInfo::new("bearer")
    }

    fn key_of(&self, value: &[u8]) -> Option<Key> {
        carried(value).filter(|token| is_one(token)).map(|token| KIND.hashed(token))
    }

    fn raw_values(&self, parts: &Parts, offered: &mut RawValues) {
        if let Ok(Some(token)) = credentials(parts, SCHEME, Pick::Same) {
            offered.push(token);
        }
    }
}
