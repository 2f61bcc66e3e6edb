//! Names of policies, checked once.
//!
//! Names appear in Redis keys, header fields (RFC 9651), JSON and metric labels. Their characters need no escaping in
//! any of these, so a [`PolicyName`] is written as it is.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;

use smol_str::SmolStr;

use super::Error;

/// Bytes.
const MAX_LEN: usize = 64;

/// The name of a policy: an ASCII letter, then up to 63 ASCII letters, digits, `.`, `_` or `-`.
///
/// Cheap to clone: up to 23 bytes are kept inline, so threads that use one policy do not share a reference count.
///
/// With the feature `serde` it is serialized as text, and deserialized by parsing it.
///
/// # Errors
///
/// `TryFrom` and `FromStr` return an error that is [invalid](Error::is_invalid) for any other text.
///
/// # Examples
///
/// ```
/// use tollgate::policy::PolicyName;
///
/// let name = PolicyName::try_from("login")?;
/// assert_eq!(name, "login");
/// assert!(PolicyName::try_from("log in").is_err());
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct PolicyName {
    text: SmolStr,
    /// Hash of the text, for tables that are read for each request. No client chooses the text, so it needs no random
    /// key.
    hash: u64,
}

impl PolicyName {
    fn new(text: SmolStr) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { text, hash: hasher.finish() }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for PolicyName {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text
    }
}

/// Hashes the text, so that a map finds a name by its text.
impl Hash for PolicyName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Borrow<str> for PolicyName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for PolicyName {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl TryFrom<&str> for PolicyName {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self, Error> {
        check(name)?;
        Ok(Self::new(name.into()))
    }
}

impl TryFrom<String> for PolicyName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        check(&name)?;
        Ok(Self::new(name.into()))
    }
}

impl FromStr for PolicyName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        name.try_into()
    }
}

impl PartialEq<str> for PolicyName {
    fn eq(&self, other: &str) -> bool {
        self.text == other
    }
}

impl PartialEq<&str> for PolicyName {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

fn check(name: &str) -> Result<(), Error> {
    let letter_first = name.starts_with(|first: char| first.is_ascii_alphabetic());
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if letter_first && plain && name.len() <= MAX_LEN {
        return Ok(());
    }
    let shown: String = name.chars().take(MAX_LEN).collect();
    Err(Error::invalid(format!(
        "policy name {shown:?} is not allowed: start with a letter, then up to 63 letters, digits, '.', '_' or '-'"
    )))
}
