//! What an extractor finds in a request, and what closures may return in its place.

use bytes::Bytes;
use http::Response;

use super::secret::Secret;
use crate::{Error, Key};

/// What an extractor finds in a request.
#[derive(Debug)]
#[non_exhaustive]
pub enum Extracted {
    /// The key to count.
    Key(Key),
    /// The key to count, with the value it is a hash of.
    Secret(Box<Secret>),
    /// The request has none: the policy's [`MissingKey`](super::MissingKey) rule decides.
    Missing,
    /// The request names several clients, or one that cannot be told for certain: a header twice with
    /// different values, say. It is never a key of its own, and never none: the policy's [`MissingKey`](super::MissingKey)
    /// rule says whether such requests are refused or share one counter.
    Ambiguous,
    /// The request is refused with this response.
    Rejected(Box<Response<Bytes>>),
    /// It is not known whether it has one: [`OnFailure`](crate::OnFailure#keys) decides.
    Failed(Box<Error>),
}

/// The kind of keys made from bare text.
const KIND: &str = "key";

impl From<Key> for Extracted {
    fn from(key: Key) -> Self {
        Extracted::Key(key)
    }
}

impl From<String> for Extracted {
    fn from(text: String) -> Self {
        of_text(text)
    }
}

impl From<&'static str> for Extracted {
    fn from(text: &'static str) -> Self {
        of_text(text)
    }
}

fn of_text(text: impl AsRef<[u8]>) -> Extracted {
    let key = Key::new(KIND, &text);
    if Key::is_hash(key.value()) { Secret::of(key, text).into() } else { Extracted::Key(key) }
}

impl<T: Into<Extracted>> From<Option<T>> for Extracted {
    fn from(found: Option<T>) -> Self {
        found.map_or(Extracted::Missing, Into::into)
    }
}

impl<T: Into<Extracted>> From<Result<T, Response<Bytes>>> for Extracted {
    fn from(found: Result<T, Response<Bytes>>) -> Self {
        found.map_or_else(|response| Extracted::Rejected(Box::new(response)), Into::into)
    }
}

impl<T: Into<Extracted>> From<Result<T, Box<Response<Bytes>>>> for Extracted {
    fn from(found: Result<T, Box<Response<Bytes>>>) -> Self {
        found.map_or_else(Extracted::Rejected, Into::into)
    }
}

impl<T: Into<Extracted>> From<Result<T, Error>> for Extracted {
    fn from(found: Result<T, Error>) -> Self {
        found.map_or_else(|error| Extracted::Failed(Box::new(error)), Into::into)
    }
}

impl From<Secret> for Extracted {
    fn from(secret: Secret) -> Self {
        Extracted::Secret(Box::new(secret))
    }
}
