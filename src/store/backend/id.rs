//! The identity of a counter's state, as a database sees it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::store::Counter;
use crate::store::evaluate::name;

/// The identity of one counter's state: its policy, key, algorithm and window.
///
/// It is a text of ASCII without spaces or control characters, such as `{user:ada}:api:1t60000000u`. The limit is not part
/// of it, so a changed limit keeps the units used. Ids are ordered as their texts are, byte by byte.
///
/// # Examples
///
/// ```
/// use tollgate::store::{Counter, StateId};
/// use tollgate::{Key, PolicyName, Quota};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let counter = Counter::new(PolicyName::try_from("api")?, Key::new("user", "ada"), Quota::per_minute(100));
/// assert_eq!(StateId::of(&counter).as_str(), "{user:ada}:api:1t60000000u");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(Arc<str>);

impl StateId {
    /// Returns the identity of a counter's state.
    pub fn of(counter: &Counter) -> Self {
        // Keys and names are ASCII.
        Self(String::from_utf8_lossy(&name(counter).concat()).into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for StateId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for StateId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
