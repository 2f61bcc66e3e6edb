//! Random histories of hybrid stores, in several processes, over one store that is far, slow and loses calls and replies.
//! Whatever happens, all processes together admit (processes − 1) × allowance units more than the limit at most, and
//! one alone none.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tollgate::store::{
    Answer, Applied, Change, Check, Counter, Deadline, Decided, Receipt, Settlement, Settling, Store,
};
use tollgate::{Error, HybridStore, MemoryStore, Quota, Source};

use super::sim::{ms, secs};
use crate::support::checks::check;
use crate::support::doubles::away;
use crate::support::slow::many;

const MONTH: Duration = secs(30 * 86_400);
const BUDGET: Duration = ms(300);
const STEPS: u32 = 250;
const KEYS: [&str; 2] = ["one", "two"];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often something happens to a call, one in so many, and how long it and its reply travel.
#[derive(Clone, Copy)]
struct Weather {
    loses: u32,
    longest: u64,
}

/// The way of a process to the store of all.
#[derive(Clone)]
struct Link {
    inner: MemoryStore,
    rng: Arc<Mutex<Rng>>,
    weather: Weather,
    /// Whose last charge did not arrive: units are not counted if the next one does not, either.
    lost: Arc<Mutex<HashSet<Counter>>>,
    /// Admissions that were refunded.
    refunds: Arc<AtomicU64>,
}

impl Link {
    /// Whether something of a chance of one in `loses` happens.
    fn loses(&self) -> bool {
        self.weather.loses > 0 && lock(&self.rng).u32(..self.weather.loses) == 0
    }

    /// Mostly not long, so that much may overtake what takes long.
    fn travel(&self) -> Duration {
        let (mut rng, longest) = (lock(&self.rng), self.weather.longest);
        let longest = if rng.u32(..3) > 0 { longest / 8 } else { longest };
        ms(rng.u64(..=longest))
    }

    /// Calls the store, whether or not the reply is waited for.
    fn call<T: Send + 'static>(
        &self,
        is_lost: bool,
        call: impl FnOnce(&MemoryStore) -> Answer<Result<T, Error>> + Send + 'static,
    ) -> Answer<Result<T, Error>> {
        let (inner, before, after) = (self.inner.clone(), self.travel(), self.travel());
        let is_reply_lost = is_lost || self.loses();
        let called = tokio::spawn(async move {
            sleep(before).await;
            let reply = if is_lost { None } else { Some(call(&inner).wait().await) };
            sleep(after).await;
            reply
        });
        Answer::pending(async move {
            let start = Instant::now();
            match timeout(BUDGET, called).await {
                Ok(Ok(Some(reply))) if !is_reply_lost => reply,
                _ => {
                    sleep(BUDGET.saturating_sub(start.elapsed())).await;
                    Err(away())
                }
            }
        })
    }
}

impl Store for Link {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        let checks = checks.to_vec();
        self.call(self.loses(), move |inner| inner.decide(&checks, deadline))
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.refunds.fetch_add(1, Ordering::Relaxed);
        let changes = changes.to_vec();
        self.call(self.loses(), move |inner| inner.settle(receipt, &changes))
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        let (counter, is_lost) = (counter.clone(), self.loses());
        let mut lost = lock(&self.lost);
        let is_lost = !lost.remove(&counter) && is_lost && lost.insert(counter.clone());
        drop(lost);
        self.call(is_lost, move |inner| inner.adjust(&counter, change))
    }

    fn reset(&self, _: &Counter) -> Answer<Result<(), Error>> {
        unreachable!("nothing is reset here")
    }

    fn budget(&self) -> Option<Duration> {
        Some(BUDGET)
    }
}

/// What was admitted of each key, and what had to be.
struct Book {
    admitted: [u64; KEYS.len()],
    processes: u64,
    allowance: u64,
    limit: u64,
}

impl Book {
    /// Notes an admission; `local` is the quota of one that was not decided by the store of all.
    fn note(&mut self, key: usize, units: u64, local: Option<Quota>) {
        self.admitted[key] += units;
        let (sum, more) = (self.admitted[key], (self.processes - 1) * self.allowance);
        assert!(sum <= self.limit + more, "{sum} admitted of {} and {more}", self.limit);
        if let Some(quota) = local.filter(|_| self.processes == 1) {
            assert!(sum <= quota.limit(), "{sum} admitted locally of {}", quota.limit());
        }
    }
}

/// What came of histories.
#[derive(Debug, Default)]
struct Counts {
    histories: u64,
    locally: u64,
    there: u64,
    dropped: u64,
    failed: u64,
    refunds: u64,
    /// Keys of which the limit was reached, and exceeded.
    reached: u64,
    exceeded: u64,
}

struct History {
    rng: Rng,
    stores: Vec<HybridStore>,
    /// Of one window or log, with limits that differ.
    quotas: Vec<Quota>,
    book: Arc<Mutex<Book>>,
    counts: Arc<Mutex<Counts>>,
    refunds: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl History {
    fn new(seed: u64, counts: &Arc<Mutex<Counts>>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let start = Instant::now();
        let inner = MemoryStore::builder().with_clock(move || MONTH * 700 + start.elapsed()).build();
        let (processes, allowance, limit) = (rng.u64(1..=3), rng.u64(1..=20), rng.u64(20..=200));
        let refunds = Arc::<AtomicU64>::default();
        let weather = Weather { loses: [0, 0, 12, 40][rng.usize(..4)], longest: [0, 20, 80, 140][rng.usize(..4)] };
        let tick = ms(rng.u64(10..120));
        let mut store = || {
            let (inner, rng) = (inner.clone(), Arc::new(Mutex::new(rng.fork())));
            let link = Link { inner, rng, weather, lost: Arc::default(), refunds: Arc::clone(&refunds) };
            HybridStore::builder(link).tick(tick).allowance(allowance).build().expect("the settings are right")
        };
        let stores = (0..processes).map(|_| store()).collect();
        let of = if rng.bool() { Quota::fixed_window } else { Quota::sliding_log };
        let few = rng.u64(limit / 2..=limit);
        let quotas = if rng.u32(..3) == 0 { vec![of(limit, MONTH), of(few, MONTH)] } else { vec![of(limit, MONTH)] };
        let book = Book { admitted: [0; KEYS.len()], processes, allowance, limit };
        let (book, counts, tasks) = (Arc::new(Mutex::new(book)), Arc::clone(counts), JoinSet::new());
        Self { rng, stores, quotas, book, counts, refunds, tasks }
    }

    async fn run(mut self) {
        let (mut pause, mut most) = (10, 5);
        for step in 0..STEPS {
            if step % 25 == 0 {
                (pause, most) = (self.rng.u64(1..40), self.rng.u64(2..9));
            }
            let quota = if self.rng.u32(..8) == 0 { self.rng.choice(&self.quotas) } else { self.quotas.first() };
            let quota = *quota.expect("there is one");
            self.request(quota, most);
            sleep(ms(self.rng.u64(..=pause))).await;
        }
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no bound is exceeded");
        }
        let (book, mut counts) = (lock(&self.book), lock(&self.counts));
        counts.histories += 1;
        counts.refunds += self.refunds.load(Ordering::Relaxed);
        counts.reached += book.admitted.iter().filter(|sum| **sum >= book.limit).count() as u64;
        counts.exceeded += book.admitted.iter().filter(|sum| **sum > book.limit).count() as u64;
    }

    /// Has a process decide about one key or both, at costs from 0; some callers wait for a while only.
    fn request(&mut self, quota: Quota, most: u64) {
        let mut keys = vec![0, 1];
        if self.rng.u32(..5) > 0 {
            keys.remove(self.rng.usize(..2));
        }
        let costs: Vec<(usize, u64)> = keys.into_iter().map(|key| (key, self.rng.u64(..most))).collect();
        let checks: Vec<Check> = costs.iter().map(|(key, cost)| check(KEYS[*key], quota, *cost)).collect();
        let patience = if self.rng.u32(..8) == 0 { ms(self.rng.u64(..200)) } else { secs(3_600) };
        let store = self.rng.choice(&self.stores).expect("there is one");
        let (book, counts) = (Arc::clone(&self.book), Arc::clone(&self.counts));
        match store.decide(&checks, Deadline::none()) {
            Answer::Ready(decided) => note(&book, &counts, &costs, quota, &decided.expect("it was decided here")),
            Answer::Pending(pending) => drop(self.tasks.spawn(async move {
                match timeout(patience, pending).await {
                    Ok(Ok(decided)) => note(&book, &counts, &costs, quota, &decided),
                    Ok(Err(_)) => lock(&counts).failed += 1,
                    Err(_) => lock(&counts).dropped += 1,
                }
            })),
        }
    }
}

fn note(book: &Mutex<Book>, counts: &Mutex<Counts>, costs: &[(usize, u64)], quota: Quota, decided: &Decided) {
    if !decided.decision.is_allowed() {
        return;
    }
    let is_local = decided.decision.source() == Source::Lease;
    let mut counts = lock(counts);
    counts.locally += u64::from(is_local);
    counts.there += u64::from(!is_local);
    for (key, units) in costs {
        lock(book).note(*key, *units, is_local.then_some(quota));
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_no_more_is_admitted_than_the_bound() {
    let (first, histories) = match std::env::var("SEED") {
        Ok(seed) => (seed.parse().expect("a number"), 1),
        Err(_) => (0, many([200, 2_000])),
    };
    let counts = Arc::<Mutex<Counts>>::default();
    for seed in first..first + histories {
        let history = tokio::spawn(History::new(seed, &counts).run());
        assert!(history.await.is_ok(), "seed {seed}");
    }
    let counts = lock(&counts);
    println!("{counts:?}");
    if histories > 1 {
        assert!(counts.locally > 20 * counts.histories && counts.there > 5 * counts.histories, "{counts:?}");
        assert!(counts.reached > counts.histories / 2 && counts.exceeded > counts.histories / 20, "{counts:?}");
        assert!(counts.refunds > 0 && counts.dropped > 0 && counts.failed > 0, "{counts:?}");
    }
}
