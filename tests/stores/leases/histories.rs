//! Leases, overdrawn or not, of a store that is slow, loses questions and answers, and cuts charges: random histories of
//! requests that charge, refund in parts and are reset.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};
use tollgate::store::{
    Ask, Change, ChangeResult, Check, Counter, MaybeFuture, Receipt, ReceiptItem, Settlement, Settling, StoreDecision,
    StoreId,
};
use tollgate::store::{LeaseStore, Store};
use tollgate::{Error, MemoryStore, Quota, Source};

use super::sim::{assert_balanced, close, ms, remaining};
use crate::support::checks::counter;
use crate::support::slow::many;

const OPERATIONS: [u32; 2] = [8_000, 20_000];
const IN_A_HISTORY: u32 = 400;
const KEYS: u64 = 6;
const LIMIT: u64 = 120;
const OVERDRAFT: u64 = 25;
const AMPLE: u64 = 10_000;
const MONTH: Duration = Duration::from_secs(30 * 86_400);
const BUDGET: Duration = ms(100);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What becomes of a question: how long it travels, whether it arrives, and whether the answer does, after
/// so long.
#[derive(Clone, Copy)]
struct Fate {
    before: Duration,
    arrives: bool,
    is_answered: bool,
    after: Duration,
}

/// A store that is slow, and loses questions and answers while it misbehaves.
#[derive(Clone)]
struct Rough {
    inner: MemoryStore,
    rng: Arc<Mutex<Rng>>,
    misbehaves: Arc<AtomicBool>,
    /// Units of debts that were left out of charges.
    cut: Arc<Mutex<HashMap<Counter, u64>>>,
}

impl Rough {
    fn fate(&self) -> Fate {
        let mut rng = lock(&self.rng);
        let (before, after) = (ms(rng.u64(..40)), ms(rng.u64(..50)));
        let loses = self.misbehaves.load(Ordering::SeqCst);
        Fate { before, arrives: !loses || rng.u32(..8) > 0, is_answered: !loses || rng.u32(..8) > 0, after }
    }

    /// Asks the inner store, whether or not the answer is waited for.
    fn ask<T: Send + 'static>(
        &self,
        fate: Fate,
        ask: impl FnOnce(&MemoryStore) -> MaybeFuture<Result<T, Error>> + Send + 'static,
    ) -> MaybeFuture<Result<T, Error>> {
        let (start, inner) = (Instant::now(), self.inner.clone());
        let asked = tokio::spawn(async move {
            sleep(fate.before).await;
            let answer = if fate.arrives { Some(ask(&inner).wait().await) } else { None };
            if let Some(answer) = answer.filter(|_| fate.is_answered) {
                sleep(fate.after).await;
                return answer;
            }
            sleep(BUDGET.saturating_sub(start.elapsed())).await;
            Err(Error::store("no answer in time", "it is a test"))
        });
        MaybeFuture::pending(async move { asked.await.expect("it ends") })
    }
}

impl Store for Rough {
    fn decide(&self, checks: &[Check], ask: Ask) -> MaybeFuture<Result<StoreDecision, Error>> {
        let checks = checks.to_vec();
        self.ask(self.fate(), move |inner| inner.decide(&checks, ask))
    }

    /// Refunds arrive in order, before what comes later; metered charges may be lost, and answers to those of debts.
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let (changes, fate) = (changes.to_vec(), self.fate());
        let [Settlement { change: Change::Charge(units), .. }] = changes[..] else {
            let settled = self.inner.settle(receipt, &changes);
            return self.ask(Fate { arrives: true, ..fate }, |_| settled);
        };
        // Debts are of nothing that was taken.
        if receipt.items().iter().any(|taken| taken.units > 0) {
            return self.ask(fate, move |inner| inner.settle(receipt, &changes));
        }
        let (cut, counter) = (Arc::clone(&self.cut), receipt.items()[0].counter.clone());
        self.ask(Fate { arrives: true, ..fate }, move |inner| {
            let MaybeFuture::Ready(Ok(applied)) = inner.settle(receipt, &changes) else { panic!("memory answers") };
            *lock(&cut).entry(counter).or_default() += units - applied[0].units;
            MaybeFuture::Ready(Ok(applied))
        })
    }

    /// A reset that is lost says nothing of what is left.
    fn adjust(&self, counter: &Counter, change: Change) -> MaybeFuture<Result<ChangeResult, Error>> {
        assert_eq!(change, Change::Reset);
        let (fate, counter) = (Fate { arrives: true, is_answered: true, ..self.fate() }, counter.clone());
        self.ask(fate, move |inner| inner.adjust(&counter, change))
    }
}

/// What a request owes: what it took first, and then what it charged.
struct Request {
    number: u64,
    store: StoreId,
    parts: Vec<ReceiptItem>,
}

impl Request {
    fn owes(&self) -> u64 {
        self.parts.iter().map(|part| part.units).sum()
    }
}

/// What requests owe for a key, since it was reset.
#[derive(Default)]
struct Owed {
    open: Vec<Request>,
    /// Of requests that have ended.
    ended: u64,
    /// Of those, what was admitted.
    admitted: u64,
    /// Taken by other processes.
    others: u64,
    /// Units that could not be refunded any more.
    kept: u64,
    /// Units of callers that did not wait: nobody knows whether they were taken.
    gone: u64,
    resets: u64,
    is_resetting: bool,
}

impl Owed {
    fn sum(&self) -> u64 {
        self.open.iter().map(Request::owes).sum::<u64>() + self.ended + self.others
    }

    fn admitted(&self) -> u64 {
        self.open.iter().map(|request| request.parts[0].units).sum::<u64>() + self.admitted + self.others
    }

    fn reset(&mut self) {
        *self = Self { resets: self.resets + 1, ..Self::default() };
    }
}

struct History {
    rough: Rough,
    leases: LeaseStore,
    rng: Rng,
    quota: Quota,
    overdraft: u64,
    keys: Vec<Arc<Mutex<Owed>>>,
    /// All is answered, and nothing is reset.
    is_calm: bool,
    requests: u64,
    counts: [u64; 5],
}

impl History {
    fn new(quota: Quota, overdraft: u64, mut rng: Rng) -> Self {
        let start = Instant::now();
        let clock = move || MONTH * 700 + start.elapsed();
        let inner = MemoryStore::builder().clock(clock).build();
        let is_calm = rng.bool();
        let rough = Rough {
            inner,
            rng: Arc::new(Mutex::new(rng.fork())),
            misbehaves: Arc::new(AtomicBool::new(!is_calm)),
            cut: Arc::default(),
        };
        // Few keys find room in some histories.
        let capacity = if rng.bool() { 10_000 } else { 3 };
        let settings = LeaseStore::builder(rough.clone()).max_share(0.2).overdraft(overdraft).capacity(capacity);
        let leases = settings.clock(clock).build();
        let keys = (0..KEYS).map(|_| Arc::default()).collect();
        Self { rough, leases, rng, quota, overdraft, keys, is_calm, requests: 0, counts: [0; 5] }
    }

    fn counter(&self, key: usize) -> Counter {
        counter(&key.to_string(), self.quota)
    }

    fn cut(&self, key: usize) -> u64 {
        lock(&self.rough.cut).get(&self.counter(key)).copied().unwrap_or_default()
    }

    async fn step(&mut self) {
        let key = self.rng.usize(..self.keys.len());
        match self.rng.u32(..100) {
            0..35 => self.request(&[key]),
            35..45 => self.request(&[key, (key + 1) % self.keys.len()]),
            45..52 => self.charge(key),
            52..72 => self.refund(key),
            72..79 => self.end(key),
            79..81 if key % 2 == 1 => self.take_elsewhere(key),
            81 if !self.is_calm => self.reset(key),
            _ => sleep(ms(self.rng.u64(..30))).await,
        }
        let counts = self.leases.counts();
        assert_balanced(&counts);
        assert!(counts.owed <= self.overdraft * KEYS, "{counts:?}");
    }

    /// Asks for one key or for two at once; some callers do not wait for the answer.
    fn request(&mut self, keys: &[usize]) {
        let costs: Vec<u64> = keys.iter().map(|_| self.rng.u64(1..5)).collect();
        let checks: Vec<_> = keys.iter().zip(&costs).map(|(key, cost)| Check::new(self.counter(*key), *cost)).collect();
        let owed: Vec<_> = keys.iter().map(|key| Arc::clone(&self.keys[*key])).collect();
        self.requests += 1;
        let (number, cut): (_, Vec<u64>) = (self.requests, keys.iter().map(|key| self.cut(*key)).collect());
        let resets = |owed: &Mutex<Owed>| {
            let owed = lock(owed);
            (owed.resets, owed.is_resetting)
        };
        let before: Vec<_> = owed.iter().map(|owed| resets(owed)).collect();
        match self.leases.decide(&checks, Ask::default()) {
            MaybeFuture::Ready(decided) => {
                let decided = decided.expect("it was admitted here");
                assert_eq!(decided.decision.source(), Source::Lease);
                self.counts[0] += 1;
                self.counts[4] = self.counts[4].max(self.leases.counts().owed);
                for (place, owed) in owed.iter().enumerate() {
                    let (used, most) = (lock(owed).admitted(), LIMIT + self.overdraft + cut[place]);
                    assert!(
                        used + costs[place] <= most,
                        "{} units were admitted over {used}: {cut:?} cut",
                        costs[place]
                    );
                    add(&mut lock(owed), number, place, &decided);
                }
            }
            MaybeFuture::Pending(decided) if self.rng.u8(..20) == 0 => {
                owed.iter().zip(costs).for_each(|(owed, cost)| lock(owed).gone += cost);
                drop(decided);
            }
            MaybeFuture::Pending(decided) => drop(tokio::spawn(async move {
                let Some(decided) = decided.await.ok().filter(|decided| decided.decision.is_allowed()) else { return };
                for (place, owed) in owed.iter().enumerate() {
                    if resets(owed) == before[place] && !before[place].1 {
                        add(&mut lock(owed), number, place, &decided);
                    }
                }
            })),
        }
    }

    fn charge(&mut self, key: usize) {
        let (units, owed) = (self.rng.u64(1..9), Arc::clone(&self.keys[key]));
        let locked = lock(&owed);
        let open = locked.open.len();
        if open == 0 || locked.is_resetting {
            return;
        }
        let request = &locked.open[self.rng.usize(..open)];
        let (number, last) = (request.number, request.parts.last().expect("there is one").clone());
        let (receipt, resets) = (Receipt::new(request.store, request.parts.iter().cloned()), locked.resets);
        let place = request.parts.len() - 1;
        drop(locked);
        if last.units == 0 {
            return;
        }
        self.counts[1] += 1;
        let settling = self.leases.settle(receipt, &[Settlement::new(place, Change::Charge(units))]);
        tokio::spawn(async move {
            let applied = settling.wait().await;
            let mut owed = lock(&owed);
            let Ok(Some(ChangeResult { units, stamp, .. })) = applied.map(|applied| applied.into_iter().next()) else {
                return;
            };
            let is_current = owed.resets == resets;
            if let Some(request) = owed.open.iter_mut().find(|request| request.number == number) {
                request.parts.push(last.units(units).stamp(stamp));
            } else if is_current {
                owed.ended += units;
            }
        });
    }

    fn refund(&mut self, key: usize) {
        let owed = Arc::clone(&self.keys[key]);
        let mut locked = lock(&owed);
        if locked.open.is_empty() || locked.is_resetting {
            return;
        }
        let (place, resets) = (self.rng.usize(..locked.open.len()), locked.resets);
        let request = &mut locked.open[place];
        let part = request.parts.len() - 1;
        let receipt = Receipt::new(request.store, request.parts.iter().cloned());
        let last = &mut request.parts[part];
        if last.units == 0 {
            return;
        }
        let units = self.rng.u64(1..=last.units);
        last.units -= units;
        if last.units == 0 && part > 0 {
            request.parts.pop();
        }
        self.counts[2] += 1;
        let settling = self.leases.settle(receipt, &[Settlement::new(part, Change::Refund(units))]);
        drop(locked);
        tokio::spawn(async move {
            let done = settling.wait().await.map_or(units, |applied| applied[0].units);
            let mut owed = lock(&owed);
            if owed.resets == resets {
                owed.kept += units - done;
            }
        });
    }

    fn end(&mut self, key: usize) {
        let mut owed = lock(&self.keys[key]);
        if !owed.open.is_empty() {
            let place = self.rng.usize(..owed.open.len());
            let request = owed.open.swap_remove(place);
            owed.ended += request.owes();
            owed.admitted += request.parts[0].units;
        }
    }

    fn take_elsewhere(&mut self, key: usize) {
        let mut owed = lock(&self.keys[key]);
        let check = Check::new(self.counter(key), 3);
        let MaybeFuture::Ready(Ok(decided)) = self.rough.inner.decide(&[check], Ask::default()) else {
            panic!("memory answers")
        };
        if decided.decision.is_allowed() && !owed.is_resetting {
            owed.others += 3;
        }
    }

    fn reset(&mut self, key: usize) {
        let owed = Arc::clone(&self.keys[key]);
        let mut locked = lock(&owed);
        if locked.is_resetting {
            return;
        }
        self.counts[3] += 1;
        locked.reset();
        locked.is_resetting = true;
        drop(locked);
        let resetting = self.leases.adjust(&self.counter(key), Change::Reset);
        tokio::spawn(async move {
            resetting.wait().await.expect("it is answered");
            lock(&owed).reset();
        });
    }

    /// Closes or drops the store, and compares what was counted with what is owed.
    async fn compare(&mut self) {
        self.rough.misbehaves.store(false, Ordering::SeqCst);
        sleep(ms(if self.is_calm { self.rng.u64(..3_000) } else { 3_000 })).await;
        if self.rng.bool() {
            let lost = close(&self.leases).await.lost;
            assert!(lost == 0 || !self.is_calm, "{lost} units are lost");
        } else {
            drop(std::mem::replace(&mut self.leases, LeaseStore::new(self.rough.clone())));
        }
        sleep(ms(1_000)).await;
        for key in 0..self.keys.len() {
            let ample = Quota::try_new(self.quota.algorithm(), AMPLE, MONTH).expect("within the bounds");
            let taken = AMPLE - remaining(&self.rough.inner, &key.to_string(), ample).await;
            let owed = lock(&self.keys[key]);
            let (least, cut) = (owed.sum(), self.cut(key));
            let (least, most) =
                if self.is_calm { (least + owed.kept, least + owed.kept + owed.gone) } else { (least, u64::MAX) };
            let counted = taken + cut;
            assert!((least..=most).contains(&counted), "key {key}: {counted} are counted, not {least} to {most}");
        }
    }
}

fn add(owed: &mut Owed, number: u64, place: usize, decided: &StoreDecision) {
    let (store, parts) = (decided.receipt.store(), vec![decided.receipt.items()[place].clone()]);
    owed.open.push(Request { number, store, parts });
}

async fn run(quota: Quota, overdraft: u64) {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    println!("{quota}, overdraft {overdraft}: seed {seed}");
    let (mut rng, mut operations, mut counts) = (Rng::with_seed(seed), 0, [0; 5]);
    while operations < many(OPERATIONS) {
        let mut history = History::new(quota, overdraft, rng.fork());
        for _ in 0..IN_A_HISTORY {
            history.step().await;
        }
        history.compare().await;
        operations += IN_A_HISTORY;
        counts.iter_mut().zip(history.counts).for_each(|(sum, count)| *sum += count);
    }
    let [locally, charges, refunds, resets, debts] = counts;
    println!(
        "{operations}: {locally} admitted here, {charges} charges, {refunds} refunds, {resets} resets, {debts} owed"
    );
    assert!(locally > 200 && charges > 200 && refunds > 200 && resets > 10, "too little happened");
    assert!((debts > 100) == (overdraft > 0), "{debts} units were owed");
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_rough_store_count_what_is_owed() {
    for quota in [Quota::fixed_window(LIMIT, MONTH), Quota::sliding_log(LIMIT, MONTH)] {
        run(quota, 0).await;
        run(quota, OVERDRAFT).await;
    }
}
