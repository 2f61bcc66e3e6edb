//! Thousands of decisions that are asked for before any is answered.

use std::future::poll_fn;
use std::task::Poll;

use fastrand::Rng;
use futures::future::{join_all, maybe_done};
use tokio::task::unconstrained;
use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::cmd;
use tollgate::store::{Ask, Check, Counter, Store};
use tollgate::{Key, Quota, RedisStore};

use super::DAY;
use crate::plain::{Plain, keys, texts};

/// Decisions that are asked for at once.
pub(super) const FLOOD: usize = 4_096;

/// Large enough that no key runs out, over a window so long that no key expires meanwhile.
const LIMIT: u64 = 1_000;

/// What was taken from each key that is refused; it comes back in a day.
const TAKEN: u64 = 100;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Allowed,
    Refused,
    ThreePolicies,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Kind::Allowed, Kind::Refused, Kind::ThreePolicies];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Allowed => "one policy, allowed",
            Kind::Refused => "one policy, refused",
            Kind::ThreePolicies => "three policies, allowed",
        }
    }

    pub(super) fn policies(self) -> &'static [&'static str] {
        match self {
            Kind::Allowed => &["bench"],
            Kind::Refused => &["empty"],
            Kind::ThreePolicies => &["first", "other", "third"],
        }
    }

    fn quota(self) -> Quota {
        Quota::token_bucket(if self == Kind::Refused { TAKEN } else { LIMIT }, DAY)
    }
}

/// Decisions about these keys.
pub(super) struct Flood {
    /// Not the one that is asked on, as answers there wait while the server is paused.
    control: MultiplexedConnection,
    keys: Vec<Key>,
    texts: Vec<String>,
    plain: Plain,
}

impl Flood {
    pub(super) fn new(count: usize, control: MultiplexedConnection) -> Self {
        let keys = keys("ip", count);
        Self { control, texts: texts("gcrakeys", &keys), keys, plain: Plain::new(LIMIT, DAY) }
    }

    /// Makes every key known to the server, with nothing left if it is to be refused.
    pub(super) async fn warm(&self, store: &RedisStore, kind: Kind) {
        let cost = if kind == Kind::Refused { TAKEN } else { 1 };
        for numbers in self.all().chunks(FLOOD) {
            let checks = numbers.iter().map(|&number| self.checks(kind, || number, cost));
            at_once(&self.control, checks.map(|checks| decide(store, checks, true))).await;
        }
    }

    pub(super) async fn warm_plain(&self, connection: &MultiplexedConnection) {
        for numbers in self.all().chunks(FLOOD) {
            self.check(connection, numbers.iter().copied()).await;
        }
    }

    pub(super) async fn decide(&self, store: &RedisStore, kind: Kind, round: usize) {
        let mut rng = Rng::with_seed(round as u64);
        let checks = (0..FLOOD).map(|_| self.checks(kind, || rng.usize(..self.keys.len()), 1));
        at_once(&self.control, checks.map(|checks| decide(store, checks, kind != Kind::Refused))).await;
    }

    pub(super) async fn plain(&self, connection: &MultiplexedConnection, round: usize) {
        let mut rng = Rng::with_seed(round as u64);
        self.check(connection, (0..FLOOD).map(|_| rng.usize(..self.keys.len()))).await;
    }

    fn all(&self) -> Vec<usize> {
        (0..self.keys.len()).collect()
    }

    fn checks(&self, kind: Kind, mut draw: impl FnMut() -> usize, cost: u64) -> Vec<Check> {
        let check = |policy: &&str| {
            let counter =
                Counter::new((*policy).try_into().expect("a valid name"), self.keys[draw()].clone(), kind.quota());
            Check::new(counter, cost)
        };
        kind.policies().iter().map(check).collect()
    }

    async fn check(&self, connection: &MultiplexedConnection, numbers: impl Iterator<Item = usize>) {
        let checks = numbers.map(async |number| {
            let wait = self.plain.check(&mut connection.clone(), &self.texts[number]).await.expect("checked");
            assert_eq!(wait, 0, "allowed");
        });
        at_once(&self.control, checks).await;
    }
}

/// Waits for all. The server is paused until each has asked: else calls could end, and take along
/// the few that wait by then, before the last has asked.
async fn at_once(connection: &MultiplexedConnection, asked: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut asked: Vec<_> = asked.map(|one| Box::pin(maybe_done(one))).collect();
    client(connection, &["PAUSE", "60000", "WRITE"]).await;
    let each = poll_fn(|cx| {
        for one in &mut asked {
            // It is polled again below.
            let _ = one.as_mut().poll(cx);
        }
        Poll::Ready(())
    });
    unconstrained(each).await;
    client(connection, &["UNPAUSE"]).await;
    join_all(asked).await;
}

async fn client(connection: &MultiplexedConnection, arguments: &[&str]) {
    let () = cmd("CLIENT").arg(arguments).query_async(&mut connection.clone()).await.expect("the server pauses");
}

async fn decide(store: &RedisStore, checks: Vec<Check>, allowed: bool) {
    let decided = store.decide(&checks, Ask::default()).wait().await.expect("decided");
    assert_eq!(decided.decision.is_allowed(), allowed, "{:?}", decided.decision);
}
