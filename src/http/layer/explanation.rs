//! What a layer makes of a request: which policies apply, by which key, and why the others do not.
//!
//! An [`Explanation`] is for operators. It is a list of [`Explained`] policies for code, and a table for people.

use std::array;
use std::borrow::Cow;
use std::fmt;
use std::iter;

use crate::core::{Key, Mode, PolicyName, Quota};

/// The columns of the table.
const HEADER: [&str; 6] = ["policy", "applies", "key", "cost", "quota", "why"];

/// What the policies of a layer make of a request, as [`RateLimitLayer::explain`](crate::RateLimitLayer::explain)
/// returns it.
///
/// Displayed, it is a table with a header, and a line for each policy.
///
/// # Examples
///
/// ```
/// use http::Request;
/// use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
///
/// let layer = RateLimitLayer::composite(MemoryStore::new())
///     .policy(Policy::new("user", Quota::per_hour(1_000)).key(key::header("x-user").plain()).cost(5))
///     .policy(Policy::new("upload", Quota::per_hour(10)).methods([http::Method::PUT]));
/// let request = Request::builder().header("x-user", "ada").body(()).expect("a valid request");
///
/// let explanation = layer.explain(&request.into_parts().0);
/// assert_eq!(
///     explanation.to_string(),
///     "\
/// policy  applies  key                cost  quota                          why
/// user    yes      header x-user:ada  5     1000 per 3600s (token_bucket)  -
/// upload  no       -                  -     10 per 3600s (token_bucket)    its methods do not include GET
/// "
/// );
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Explanation {
    pub(super) policies: Vec<Explained>,
}

/// What one policy makes of a request.
#[derive(Clone, Debug)]
pub struct Explained {
    pub(super) policy: PolicyName,
    pub(super) quota: Quota,
    pub(super) key: Option<Key>,
    pub(super) cost: u64,
    pub(super) mode: Mode,
    pub(super) verdict: Verdict,
    pub(super) why: Option<Cow<'static, str>>,
}

/// What becomes of the request, as far as a policy decides that without the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The policy counts it.
    Counts,
    /// The policy does not apply.
    Skips,
    /// The policy refuses it.
    Refuses,
    /// A lookup comes first.
    Waits,
}

impl Explanation {
    /// Returns the policies in the order in which they were added, also those after one that refuses the request.
    pub fn policies(&self) -> &[Explained] {
        &self.policies
    }
}

impl Explained {
    /// Returns the name of the policy.
    pub fn policy(&self) -> &str {
        self.policy.as_str()
    }

    /// Returns the quota: that of the client's tier, if there is one and it needs no lookup.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Returns the key of the counter, as in the store; `None` if the request is not counted, or the key is looked up.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Returns how many units the request costs; 0 if there is no [key](Self::key).
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns whether the policy is in shadow mode, so that it refuses nothing.
    pub fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    /// Returns whether the policy applies: it counts the request or refuses it, or a lookup decides whether it does.
    pub fn applies(&self) -> bool {
        self.verdict != Verdict::Skips
    }

    /// Returns whether the policy refuses the request whatever its counter has left, as for a client on a deny list.
    pub fn refuses(&self) -> bool {
        self.verdict == Verdict::Refuses
    }

    /// Returns why the policy does not apply, or what is special; `None` if it counts the request by its own key.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Returns its line of the table.
    fn row(&self) -> [String; 6] {
        let applies = match self.verdict {
            Verdict::Skips => "no",
            Verdict::Waits => "perhaps",
            Verdict::Counts if self.is_shadow() => "shadow",
            Verdict::Counts | Verdict::Refuses => "yes",
        };
        let none = || "-".to_owned();
        [
            self.policy().to_owned(),
            applies.to_owned(),
            self.key.as_ref().map_or_else(none, Key::to_string),
            self.key.as_ref().map_or_else(none, |_| self.cost.to_string()),
            self.quota.to_string(),
            self.why().map_or_else(none, str::to_owned),
        ]
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.policies.iter().map(Explained::row);
        let lines: Vec<[String; 6]> = iter::once(HEADER.map(str::to_owned)).chain(lines).collect();
        // A format takes no larger width, and panics.
        let most = usize::from(u16::MAX);
        let widest = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0).min(most);
        let widths: [usize; 5] = array::from_fn(widest);
        for line in &lines {
            for (cell, width) in line.iter().zip(widths) {
                write!(f, "{cell:width$}  ")?;
            }
            writeln!(f, "{}", line[HEADER.len() - 1])?;
        }
        Ok(())
    }
}
