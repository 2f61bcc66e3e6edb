//! Stores that are unavailable, and what stores of tests do not do themselves: they pass it on.

use std::time::Duration;

use tollgate::store::{Capabilities, Receipt, Requirement, Settlement, Settling, Store};
use tollgate::test_util::FailingStore;
use tollgate::{Error, MemoryStore};

/// Methods of [`Store`](tollgate::store::Store) that are those of the store inside: `passes_on!(inner: settle, adjust);`.
#[allow(unused_macros, reason = "not every room has such stores")]
macro_rules! passes_on {
    ($inner:tt: $($method:ident),+) => {
        $($crate::support::doubles::passes_on!(@$method $inner);)+
    };
    (@decide $inner:tt) => {
        fn decide(
            &self,
            checks: &[tollgate::store::Check],
            ask: tollgate::store::Ask,
        ) -> tollgate::store::MaybeFuture<Result<tollgate::store::StoreDecision, tollgate::Error>> {
            self.$inner.decide(checks, ask)
        }
    };
    (@settle $inner:tt) => {
        fn settle(
            &self,
            receipt: tollgate::store::Receipt,
            changes: &[tollgate::store::Settlement],
        ) -> tollgate::store::Settling {
            self.$inner.settle(receipt, changes)
        }
    };
    (@adjust $inner:tt) => {
        fn adjust(
            &self,
            counter: &tollgate::store::Counter,
            change: tollgate::store::Change,
        ) -> tollgate::store::MaybeFuture<Result<tollgate::store::ChangeResult, tollgate::Error>> {
            self.$inner.adjust(counter, change)
        }
    };
    (@capabilities $inner:tt) => {
        fn capabilities(
            &self,
            requirements: &[tollgate::store::Requirement<'_>],
        ) -> Result<tollgate::store::Capabilities, tollgate::Error> {
            self.$inner.capabilities(requirements)
        }
    };
}

#[allow(unused_imports, reason = "not every room has such stores")]
pub(crate) use passes_on;

/// A store that is unavailable.
pub(crate) fn unavailable() -> FailingStore<MemoryStore> {
    let store = FailingStore::new(MemoryStore::new());
    store.fail_with(away);
    store
}

/// The error of a store that is unavailable.
pub(crate) fn away() -> Error {
    Error::store("the store is away", std::io::Error::other("gone"))
}

/// A store that claims this budget: no store without a server has one.
pub(crate) struct Bounded<S>(pub(crate) S, pub(crate) Option<Duration>);

impl<S: Store> Store for Bounded<S> {
    passes_on!(0: decide, settle, adjust);

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        let capabilities = Capabilities::without_bans(requirements)?;
        Ok(self.1.map_or(capabilities, |budget| capabilities.timeout(budget)))
    }
}

/// A store whose settlements a closure makes.
pub(crate) struct SettlesBy<S, F>(S, F);

/// Has a closure settle in place of a store, which it gets.
pub(crate) fn settles_by<S, F>(inner: S, settle: F) -> SettlesBy<S, F>
where
    F: Fn(&S, Receipt, &[Settlement]) -> Settling + Send + Sync + 'static,
{
    SettlesBy(inner, settle)
}

impl<S: Store, F> Store for SettlesBy<S, F>
where
    F: Fn(&S, Receipt, &[Settlement]) -> Settling + Send + Sync + 'static,
{
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        (self.1)(&self.0, receipt, changes)
    }

    passes_on!(0: decide, adjust);
}
