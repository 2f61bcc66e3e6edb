//! A case of the suite: a name, and what runs on a store.

use std::future::Future;
use std::pin::Pin;

use super::subject::{Checked, Subject};

/// What is run on a new store.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) run: for<'a> fn(&'a Subject) -> Pin<Box<dyn Future<Output = Checked> + Send + 'a>>,
}

/// Cases of one kind.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) cases: &'static [Case],
    /// Whether it matters when windows start, so that only a clock that is set can be compared.
    pub(super) has_start: bool,
}

/// Lists functions as cases, by their names.
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        &[$($crate::test_util::conformance::case::Case {
            name: stringify!($name),
            run: |on| Box::pin($name(on)),
        }),+]
    };
}
