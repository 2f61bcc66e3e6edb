//! The name of a policy.

use std::fmt;
use std::ops::Deref;

use smol_str::SmolStr;

/// The name of a policy, cheap to clone: up to 23 bytes are kept inline, so that threads which count
/// against one policy share no reference count.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyName(SmolStr);

impl PolicyName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for PolicyName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for PolicyName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for PolicyName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for PolicyName {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl PartialEq<str> for PolicyName {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}
