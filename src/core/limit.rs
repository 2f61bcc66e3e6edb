//! Quotas under the names of their policies.
//!
//! Each request refers to its limit in a check, an outcome and a receipt, on whatever thread it is served. All threads
//! would write a reference count, which would be most of the cost of a check in memory where two threads share it. So
//! the limits of layers and limiters are interned.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::quota::Tick;
use super::{PolicyName, Quota};

/// Version of names and states. A new version starts with fresh state, because no name of the old version is read any
/// more.
const FORMAT: &str = "1";

/// Interned limits, many more than a process has policies. Further limits are counted by reference.
const MAX_INTERNED: usize = 4_096;

type Interned = Mutex<HashSet<&'static NamedQuota>>;

#[derive(Clone, Debug, Eq)]
pub(crate) enum Limit {
    Interned(&'static NamedQuota),
    /// Limit of a tier, of a policy that a handler checks, or of a counter made by hand.
    Counted(Arc<NamedQuota>),
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct NamedQuota {
    pub(crate) policy: PolicyName,
    pub(crate) quota: Quota,
    /// `<policy>:<shape>`, which databases add to the key in the name of a counter's state.
    ///
    /// The shape is the format, the letter of the algorithm, the window in ticks, and `u` or `m` for ticks of 1 µs or 1
    /// ms. A calendar has its name in place of the last two, which no digit begins: `1fmonth31@Europe/Berlin`. A ban
    /// has neither.
    pub(crate) state: Box<str>,
    /// Hash of `state`.
    pub(crate) hash: u64,
}

impl NamedQuota {
    fn new(policy: PolicyName, quota: Quota) -> Self {
        let window = match (quota.calendar(), quota.tick()) {
            _ if quota.is_ban() => String::new(),
            (Some(calendar), _) => calendar.name().to_owned(),
            (None, Tick::Micro) => format!("{}u", quota.window_ticks()),
            (None, Tick::Milli) => format!("{}m", quota.window_ticks()),
        };
        let state = format!("{policy}:{FORMAT}{}{window}", quota.facts().letter).into_boxed_str();
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        Self { policy, quota, state, hash: hasher.finish() }
    }
}

impl Limit {
    pub(crate) fn new(policy: PolicyName, quota: Quota) -> Self {
        Self::Counted(Arc::new(NamedQuota::new(policy, quota)))
    }

    pub(crate) fn interned(self) -> Self {
        static INTERNED: LazyLock<Interned> = LazyLock::new(Mutex::default);
        self.interned_in(&INTERNED)
    }

    fn interned_in(self, interned: &Interned) -> Self {
        let mut interned = interned.lock().unwrap_or_else(PoisonError::into_inner);
        match interned.get(&*self) {
            Some(same) => Self::Interned(same),
            None if interned.len() >= MAX_INTERNED => self,
            None => {
                let limit = Box::leak(Box::new(NamedQuota::new(self.policy.clone(), self.quota)));
                interned.insert(limit);
                Self::Interned(limit)
            }
        }
    }
}

impl Deref for Limit {
    type Target = NamedQuota;

    #[inline]
    fn deref(&self) -> &NamedQuota {
        match self {
            Self::Interned(limit) => limit,
            Self::Counted(limit) => limit,
        }
    }
}

impl PartialEq for Limit {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(&raw const **self, &raw const **other) || **self == **other
    }
}

impl Hash for Limit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(number: usize) -> Limit {
        Limit::new(format!("p{number}").as_str().try_into().expect("a valid name"), Quota::per_hour(7))
    }

    #[test]
    fn each_different_limit_is_interned_once_and_no_more_than_so_many() {
        let interned = Interned::default();
        let address = |limit: &Limit| &raw const **limit;
        let (one, same) = (limit(0).interned_in(&interned), limit(0).interned_in(&interned));
        assert_eq!((address(&one), &one), (address(&same), &limit(0)));
        for number in 0..2 * MAX_INTERNED {
            let limit = limit(number).interned_in(&interned);
            assert_eq!(matches!(limit, Limit::Interned(_)), number < MAX_INTERNED);
            assert_eq!(limit, self::limit(number));
        }
        assert_eq!(address(&limit(0).interned_in(&interned)), address(&one));
    }
}
