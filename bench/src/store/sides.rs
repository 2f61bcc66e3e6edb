//! The ways to check one key, or three.

use std::sync::Arc;

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::cmd;
use tollgate::deadpool_redis::{Connection, Pool};
use tollgate::policy::PolicyName;
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, Quota, RedisStore};

use crate::load::{Keys, Side};
use crate::plain::Plain;

/// A connection from the pool, and the script, for each check.
#[derive(Clone)]
pub(super) struct Pooled {
    pub(super) pool: Pool,
    pub(super) plain: Plain,
    pub(super) texts: Arc<[String]>,
}

impl Side for Pooled {
    async fn check(&self, [number, ..]: Keys) {
        let mut connection: Connection = self.pool.get().await.expect("a connection");
        let wait = self.plain.check(&mut connection, &self.texts[number]).await.expect("checked");
        assert_eq!(wait, 0, "allowed");
    }
}

/// The script on one connection that all tasks share.
#[derive(Clone)]
pub(super) struct Multiplexed {
    pub(super) connection: MultiplexedConnection,
    pub(super) plain: Plain,
    pub(super) texts: Arc<[String]>,
}

impl Multiplexed {
    async fn ask(&self, number: usize) {
        let wait = self.plain.check(&mut self.connection.clone(), &self.texts[number]).await.expect("checked");
        assert_eq!(wait, 0, "allowed");
    }
}

impl Side for Multiplexed {
    async fn check(&self, [number, ..]: Keys) {
        self.ask(number).await;
    }
}

/// `INCR` on one connection that all tasks share.
#[derive(Clone)]
pub(crate) struct Incr {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) texts: Arc<[String]>,
}

impl Side for Incr {
    async fn check(&self, [number, ..]: Keys) {
        let call = cmd("INCR").arg(&self.texts[number]).query_async(&mut self.connection.clone()).await;
        let () = call.expect("counted");
    }
}

/// One policy of the store.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) store: RedisStore,
    pub(crate) keys: Arc<[Key]>,
    pub(crate) quota: Quota,
    pub(crate) policy: PolicyName,
    pub(crate) allowed: bool,
}

impl Stored {
    fn check_of(&self, number: usize, cost: u64) -> Check {
        let key = self.keys[number % self.keys.len()].clone();
        Check::new(Counter::new(self.policy.clone(), key, self.quota), cost)
    }

    /// Takes all there is from every key.
    pub(super) async fn exhaust(&self, cost: u64) {
        for number in 0..self.keys.len() {
            let decided =
                self.store.decide(&[self.check_of(number, cost)], Ask::default()).wait().await.expect("decided");
            assert!(decided.decision.is_allowed(), "{:?}", decided.decision);
        }
    }
}

impl Side for Stored {
    async fn check(&self, [number, ..]: Keys) {
        let decided = self.store.decide(&[self.check_of(number, 1)], Ask::default()).wait().await.expect("decided");
        assert_eq!(decided.decision.is_allowed(), self.allowed, "{:?}", decided.decision);
    }
}

/// Three policies of the store in one decision.
#[derive(Clone)]
pub(super) struct StoredThrice {
    pub(super) each: [Stored; 3],
}

impl Side for StoredThrice {
    async fn check(&self, numbers: Keys) {
        let [ip, user, route] = &self.each;
        let checks = [ip.check_of(numbers[0], 1), user.check_of(numbers[1], 1), route.check_of(numbers[2], 1)];
        let decided = ip.store.decide(&checks, Ask::default()).wait().await.expect("decided");
        assert!(decided.decision.is_allowed(), "{:?}", decided.decision);
    }
}

/// Three calls of the script, one after the other.
#[derive(Clone)]
pub(super) struct InTurn {
    pub(super) each: [Multiplexed; 3],
}

impl Side for InTurn {
    async fn check(&self, numbers: Keys) {
        for (one, number) in self.each.iter().zip(numbers) {
            one.ask(number).await;
        }
    }
}

/// Three calls of the script, all sent before any is answered.
#[derive(Clone)]
pub(super) struct AtOnce {
    pub(super) each: [Multiplexed; 3],
}

impl Side for AtOnce {
    async fn check(&self, numbers: Keys) {
        let [ip, user, route] = &self.each;
        tokio::join!(ip.ask(numbers[0]), user.ask(numbers[1]), route.ask(numbers[2]));
    }
}
