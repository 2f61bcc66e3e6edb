//! What checks one key or several on Redis: through a store, and by `INCR`.

use std::sync::Arc;

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::pipe;
use tollgate::policy::PolicyName;
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, RedisStore};

use super::QUOTA;
use crate::load::{Keys, Side};
use crate::plain::{keys, texts};
use crate::store::sides::{Incr, Stored};

/// One token bucket for each key, admitted.
pub(super) fn stored(store: RedisStore, clients: usize) -> Stored {
    Stored { store, keys: keys("ip", clients).into(), quota: QUOTA, policy: name("bench"), allowed: true }
}

/// One counter for each key, whose text is as long.
pub(super) fn incr(connection: MultiplexedConnection, clients: usize) -> Incr {
    Incr { connection, texts: texts("incrkeys", &keys("ip", clients)).into() }
}

/// Several policies over one key, in one decision.
#[derive(Clone)]
pub(super) struct Policies {
    pub(super) store: RedisStore,
    pub(super) names: Arc<[PolicyName]>,
    pub(super) keys: Arc<[Key]>,
}

impl Side for Policies {
    async fn check(&self, [number, ..]: Keys) {
        let counter = |name: &PolicyName| Counter::new(name.clone(), self.keys[number].clone(), QUOTA);
        let checks: Vec<_> = self.names.iter().map(|name| Check::new(counter(name), 1)).collect();
        let decided = self.store.decide(&checks, Ask::default()).wait().await.expect("decided");
        assert!(decided.decision.is_allowed(), "{:?}", decided.decision);
    }
}

/// As many counters, in one pipeline.
#[derive(Clone)]
pub(super) struct Incrs {
    pub(super) connection: MultiplexedConnection,
    /// The texts of each policy's keys.
    pub(super) texts: Arc<[Vec<String>]>,
}

impl Side for Incrs {
    async fn check(&self, [number, ..]: Keys) {
        let mut calls = pipe();
        for texts in self.texts.iter() {
            calls.incr(&texts[number], 1);
        }
        let counts: Vec<u64> = calls.query_async(&mut self.connection.clone()).await.expect("counted");
        assert_eq!(counts.len(), self.texts.len(), "a reply for each counter");
    }
}

pub(super) fn name(name: &str) -> PolicyName {
    name.try_into().expect("a valid name")
}
