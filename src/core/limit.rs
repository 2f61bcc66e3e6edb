//! What a policy bounds: a quota, under the name of the policy.
//!
//! Each request refers to it in its check, its outcome and its receipt, on whatever thread it is served. A count of these
//! references would be written by all threads, and is most of what a check in memory takes where two threads share it.
//! So the limits of layers and limiters are kept for as long as the process lives, each different one once.

use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::{PolicyName, Quota};

/// How many are kept: many more than a process has policies. Beyond that, references are counted.
const MOST_KEPT: usize = 4_096;

static KEPT: LazyLock<Mutex<HashSet<&'static NamedQuota>>> = LazyLock::new(Mutex::default);

/// A quota under the name of its policy; cheap to clone.
#[derive(Clone, Debug, Eq)]
pub(crate) enum Limit {
    /// That of a layer or limiter.
    Kept(&'static NamedQuota),
    /// That of a tier, of a policy that a handler checks, or of a counter that was made by hand.
    Counted(Arc<NamedQuota>),
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct NamedQuota {
    pub(crate) policy: PolicyName,
    pub(crate) quota: Quota,
}

impl Limit {
    pub(crate) fn new(policy: PolicyName, quota: Quota) -> Self {
        Self::Counted(Arc::new(NamedQuota { policy, quota }))
    }

    /// Keeps it for as long as the process lives, if there are not too many.
    pub(crate) fn keep(self) -> Self {
        let Self::Counted(counted) = self else { return self };
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = kept.get(&*counted) {
            return Self::Kept(same);
        }
        if kept.len() >= MOST_KEPT {
            return Self::Counted(counted);
        }
        let NamedQuota { policy, quota } = &*counted;
        let new = Box::leak(Box::new(NamedQuota { policy: policy.clone(), quota: *quota }));
        kept.insert(new);
        Self::Kept(new)
    }
}

impl Deref for Limit {
    type Target = NamedQuota;

    #[inline]
    fn deref(&self) -> &NamedQuota {
        match self {
            Self::Kept(kept) => kept,
            Self::Counted(counted) => counted,
        }
    }
}

impl PartialEq for Limit {
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
        Limit::new(format!("kept{number}").as_str().try_into().expect("a valid name"), Quota::per_hour(7))
    }

    #[test]
    fn each_different_limit_is_kept_once_and_no_more_than_so_many() {
        let address = |limit: &Limit| &raw const **limit;
        let (one, same) = (limit(0).keep(), limit(0).keep());
        assert_eq!((address(&one), &one), (address(&same), &limit(0)));
        for number in 0..2 * MOST_KEPT {
            assert_eq!(limit(number).keep(), limit(number));
        }
        assert_eq!(KEPT.lock().expect("nothing panics").len(), MOST_KEPT);
        assert_eq!(address(&limit(0).keep()), address(&one));
    }
}
