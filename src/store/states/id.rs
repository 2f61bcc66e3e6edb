use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::store::bans::{changed, with_bans};
use crate::store::evaluate::{name, untaken};
use crate::store::{Change, Check, Counter, Receipt, Settlement};

/// The identity of one counter's state: its policy, key, algorithm and window.
///
/// It is a text of ASCII without spaces or control characters, such as `{user:ada}:api:1t60000000u`. The limit is not
/// part of it, so a changed limit keeps the units used. Ids are ordered by their texts, byte by byte.
///
/// # Examples
///
/// ```
/// use tollgate::policy::PolicyName;
/// use tollgate::store::{Counter, StateId};
/// use tollgate::{Key, Quota};
///
/// # fn main() -> Result<(), tollgate::Error> {
/// let counter = Counter::new(PolicyName::try_from("api")?, Key::new("user", "ada"), Quota::per_minute(100));
/// assert_eq!(StateId::new(&counter).as_str(), "{user:ada}:api:1t60000000u");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId(Arc<str>);

impl StateId {
    /// Returns the identity of a counter's state.
    pub fn new(counter: &Counter) -> Self {
        // Keys and names are ASCII.
        Self(String::from_utf8_lossy(&name(counter).concat()).into())
    }

    /// Returns the states that [a decision](super::Evaluation::decide) over these checks needs.
    ///
    /// They are in the order of the checks, with repeats. A check with a ban needs two.
    pub fn of_checks(checks: &[Check]) -> Vec<Self> {
        with_bans(checks).iter().map(|check| Self::new(&check.counter)).collect()
    }

    /// Returns the states that [a settlement](super::Evaluation::settle) needs.
    ///
    /// They are in the order of the changes, with repeats. A change without effect needs none.
    pub fn of_changes(receipt: &Receipt, changes: &[Settlement]) -> Vec<Self> {
        let made = changes.iter().filter_map(|settlement| settlement.bounded(receipt));
        made.map(|(taken, change)| Self::new(&changed(taken, change).0.counter)).collect()
    }

    /// Returns the state that [a change](super::Evaluation::adjust) to a counter needs.
    pub fn of_change(counter: &Counter, change: Change) -> Self {
        Self::new(&changed(&untaken(counter), change).0.counter)
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
