mod calls;
#[cfg(feature = "cluster")]
mod servers;

use std::time::Duration;

use super::rule::FailureRules;
use super::without::Without;
use crate::error::Kind;
use crate::store::{Check, Counter, Decided};
use crate::{Error, Key, Quota};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn without(rules: FailureRules) -> Without {
    Without::new(rules)
}

fn away() -> Error {
    Error::new(Kind::Timeout, "no answer")
}

fn check() -> Check {
    let counter = Counter { policy: "p".into(), key: Key::new("k", "v"), quota: Quota::per_hour(100) };
    Check::new(counter, 1)
}

/// What is decided in the end, after the store decided like this.
fn told(without: &Without, mut decided: Result<Decided, Error>) -> Decided {
    let permit = without.ask().expect("the store is asked");
    without.learn(permit, &decided);
    without.stand_in(&[check()], &mut decided);
    decided.expect("it is decided")
}
