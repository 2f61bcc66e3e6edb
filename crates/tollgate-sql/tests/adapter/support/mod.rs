//! What the tests share.

pub(crate) mod table;

use tollgate::store::{Check, Counter};
use tollgate::{Key, Quota};

pub(crate) fn counter(key: &str, quota: Quota) -> Counter {
    Counter::new("policy".try_into().expect("a valid name"), Key::new("key", key), quota)
}

pub(crate) fn check(key: &str, quota: Quota, cost: u64) -> Check {
    Check::new(counter(key, quota), cost)
}
