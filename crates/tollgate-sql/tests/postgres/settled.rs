//! Settlements while the server is unavailable: what surely was not made is made later, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tollgate::store::{BreakerState, Change, Settlement, StateId, Store, StoreDecision};
use tollgate::{Error, Key, Limiter, Quota, Rule, Source};
use tollgate_sql::postgres::Postgres;
use tollgate_sql::{BackendStore, Loaded, StateBackend};

use crate::support::proxy::{Mode, Proxy};
use crate::support::server::{Server, url};
use crate::support::{AMPLE, HOUR, check, database, decide, number, on, until};

const OUTAGE: Duration = Duration::from_millis(350);
/// The longest pause before a settlement is tried again, and what it takes to connect on a busy machine.
const SOON: Duration = Duration::from_secs(1);
const HUNDRED: Quota = Quota::fixed_window(100, HOUR);
const TEN_SLOTS: Quota = Quota::concurrency(10).slot_ttl(Duration::from_secs(60));

async fn taken(store: &impl Store) -> StoreDecision {
    let decided = decide(store, &[check("api", "ada", HUNDRED).cost(100)]).await.expect("a decision");
    assert!(decided.decision.is_allowed());
    decided
}

fn refund(store: &impl Store, decided: StoreDecision, units: u64) {
    drop(store.settle(decided.receipt, &[Settlement::new(0, Change::Refund(units))]));
}

async fn left(store: &impl Store) -> Option<u64> {
    let decided = decide(store, &[check("api", "ada", HUNDRED).cost(0)]).await;
    Some(decided.ok()?.decision.outcomes()[0].remaining())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_and_refunds_of_a_restart_are_free_again_soon_after_it() {
    let mut server = Server::start();
    let store = database(&server).await.store().expect("a store");
    let limiter = Limiter::new(store.clone(), [Rule::new("slots", TEN_SLOTS)]);
    let ada = Key::new("user", "ada");
    let acquire = async || {
        let (decision, slot) = limiter.acquire(&ada).await.expect("the fallback decides, if the server does not");
        (decision.is_allowed() && decision.source() == Source::Store).then_some(slot)
    };
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(acquire().await.expect("a slot"));
    }
    assert!(acquire().await.is_none(), "all are taken");
    let decided = taken(&store).await;
    server.kill();
    drop(held);
    refund(&store, decided, 100);
    let start = Instant::now();
    while start.elapsed() < OUTAGE {
        let (decision, _) = limiter.acquire(&ada).await.expect("the fallback decides");
        assert_eq!(decision.source(), Source::Fallback);
    }
    assert_ne!(limiter.breaker_state(), BreakerState::Closed);
    tokio::task::block_in_place(|| server.restart());
    assert!(until(SOON, async || left(&store).await == Some(100)).await.is_some(), "the units are free");
    let mut again = Vec::new();
    let all = async || {
        again.extend(acquire().await);
        again.len() == 10
    };
    assert!(until(SOON, all).await.is_some(), "the slots are free");
}

/// Loads of which the next few lose their session, before anything is committed.
struct LosesSessions(Postgres, Arc<AtomicUsize>);

impl StateBackend for LosesSessions {
    type Tx = <Postgres as StateBackend>::Tx;

    async fn load(&self, ids: &[StateId]) -> Result<Loaded<Self::Tx>, Error> {
        let loaded = self.0.load(ids).await?;
        if self.1.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            let ended =
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE state LIKE 'idle in%'";
            assert_eq!(number(&self.0, ended).await, 1);
            // The client has to notice.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(loaded)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_whose_session_ends_before_its_commit_is_made_once() {
    let server = Server::start();
    let (postgres, losses) = (database(&server).await, Arc::<AtomicUsize>::default());
    let backend = LosesSessions(postgres.clone(), Arc::clone(&losses));
    let store = BackendStore::builder(backend).timeout(AMPLE).build();
    let decided = taken(&store).await;
    losses.store(3, Ordering::SeqCst);
    refund(&store, decided, 40);
    assert!(until(AMPLE, async || left(&store).await == Some(40)).await.is_some());
    tokio::time::sleep(OUTAGE).await;
    assert_eq!((left(&store).await, losses.load(Ordering::SeqCst)), (Some(40), 0));
}

/// Refunds 40 of 100 units while rows can be read and not written, and unlocks them after something else.
async fn refunds_locked(budget: Duration, meanwhile: impl AsyncFnOnce(&Postgres)) {
    let server = Server::start();
    let postgres = database(&server).await;
    let store = on(&server.url(), budget, 4).store().expect("a store");
    assert!(until(AMPLE, async || left(&store).await == Some(100)).await.is_some(), "it connects");
    let decided = taken(&store).await;
    let mut client = postgres.pool().get().await.expect("a connection");
    let lock = client.transaction().await.expect("a transaction");
    lock.batch_execute("LOCK TABLE tollgate_states IN SHARE MODE").await.expect("nobody writes");
    refund(&store, decided, 40);
    meanwhile(&postgres).await;
    lock.rollback().await.expect("it is there");
    assert!(until(SOON, async || left(&store).await == Some(40)).await.is_some(), "{:?}", left(&store).await);
    tokio::time::sleep(OUTAGE).await;
    assert_eq!(left(&store).await, Some(40));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_that_waits_too_long_for_a_lock_is_made_once_when_it_is_free() {
    refunds_locked(Duration::from_millis(100), async |_| tokio::time::sleep(OUTAGE).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_whose_session_ends_in_its_write_is_made_once() {
    let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE NOT granted";
    let ends = async |postgres: &Postgres| {
        assert!(until(AMPLE, async || number(postgres, ended).await == 1).await.is_some(), "it waits for the lock");
    };
    refunds_locked(AMPLE, ends).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refund_whose_reply_is_lost_is_not_made_again() {
    let server = Server::start();
    let direct = database(&server).await.store().expect("a store");
    let proxy = Proxy::start(server.port(), Duration::ZERO).await;
    let store = on(&url(proxy.port), AMPLE, 4).store().expect("a store");
    let decided = taken(&store).await;
    proxy.set(Mode::HoldsCommits);
    refund(&store, decided, 40);
    assert!(until(AMPLE, async || left(&direct).await == Some(40)).await.is_some(), "it is made");
    proxy.set(Mode::Cuts);
    tokio::time::sleep(OUTAGE).await;
    proxy.set(Mode::Passes);
    tokio::time::sleep(SOON).await;
    assert_eq!(left(&direct).await, Some(40));
}
