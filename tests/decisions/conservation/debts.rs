//! A hybrid store over one that is slow, loses questions and answers, and cuts charges: random histories of
//! requests that charge, refund in parts and are reset.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};
use tollgate::store::{
    Answer, Applied, Ask, Capabilities, Change, Check, Counter, Decided, Receipt, Requirement, Settlement, Settling,
    StoreId, Taken,
};
use tollgate::{Error, HybridStore, Key, MemoryStore, Quota, Source, Store};

const OPERATIONS: u32 = 20_000;
const IN_A_HISTORY: u32 = 400;
const KEYS: u64 = 6;
const LIMIT: u64 = 60;
const ALLOWANCE: u64 = 15;
const AMPLE: u64 = 1_000;
const MONTH: Duration = Duration::from_secs(30 * 86_400);
const BUDGET: Duration = ms(100);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

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

/// What was charged for what was admitted by the hybrid store.
#[derive(Clone, Copy, Debug, Default)]
struct Charges {
    applied: u64,
    /// Of those, units whose answer was lost, or late.
    unanswered: u64,
    /// Units that were left out, of all charges.
    cut: u64,
    /// The last charge did not arrive.
    was_lost: bool,
}

#[derive(Clone)]
struct Rough {
    inner: MemoryStore,
    rng: Arc<Mutex<Rng>>,
    misbehaves: Arc<AtomicBool>,
    /// A metered charge is being made.
    meters: Arc<AtomicBool>,
    charges: Arc<Mutex<HashMap<Counter, Charges>>>,
}

impl Rough {
    fn fate(&self) -> Fate {
        if !self.misbehaves.load(Ordering::SeqCst) {
            return Fate { before: ms(1), arrives: true, is_answered: true, after: ms(1) };
        }
        let mut rng = lock(&self.rng);
        let (before, after) = (ms(rng.u64(..40)), ms(rng.u64(..50)));
        Fate { before, arrives: rng.u32(..8) > 0, is_answered: rng.u32(..8) > 0, after }
    }

    /// Asks the inner store, whether or not the answer is waited for.
    fn ask<T: Send + 'static>(
        &self,
        fate: Fate,
        ask: impl FnOnce(&MemoryStore) -> Answer<Result<T, Error>> + Send + 'static,
    ) -> Answer<Result<T, Error>> {
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
        Answer::pending(async move { asked.await.expect("it ends") })
    }
}

impl Store for Rough {
    fn decide(&self, checks: &[Check], ask: Ask) -> Answer<Result<Decided, Error>> {
        let checks = checks.to_vec();
        self.ask(self.fate(), move |inner| inner.decide(&checks, ask))
    }

    /// Refunds arrive in order, before what comes later; charges may be lost.
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let (changes, fate) = (changes.to_vec(), self.fate());
        if matches!(changes[..], [Settlement { change: Change::Charge(_), .. }]) {
            return self.ask(fate, move |inner| inner.settle(receipt, &changes));
        }
        let settled = self.inner.settle(receipt, &changes);
        self.ask(Fate { arrives: true, ..fate }, |_| settled)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        if change == Change::Reset {
            return self.reset(counter.clone());
        }
        let (Change::Charge(units), mut fate) = (change, self.fate()) else { panic!("only charges") };
        let (charges, counter) = (Arc::clone(&self.charges), counter.clone());
        let meters = self.meters.load(Ordering::SeqCst);
        if !meters {
            let mut charges = lock(&charges);
            let of = charges.entry(counter.clone()).or_default();
            // A unit is not counted if two charges are lost, and nothing could be said.
            fate.arrives |= of.was_lost;
            of.was_lost = !fate.arrives;
        }
        self.ask(fate, move |inner| {
            let Answer::Ready(Ok(applied)) = inner.adjust(&counter, change) else { panic!("memory answers") };
            let mut charges = lock(&charges);
            let of = charges.entry(counter).or_default();
            of.cut += units - applied.units;
            if !meters {
                of.applied += applied.units;
                of.unanswered += if fate.is_answered { 0 } else { applied.units };
            }
            Answer::Ready(Ok(applied))
        })
    }

    fn capabilities(&self, requirements: &[Requirement<'_>]) -> Result<Capabilities, Error> {
        Ok(Capabilities::without_bans(requirements)?.budget(BUDGET))
    }
}

impl Rough {
    /// One that is lost says nothing of what is left.
    fn reset(&self, counter: Counter) -> Answer<Result<Applied, Error>> {
        let fate = Fate { arrives: true, is_answered: true, ..self.fate() };
        self.ask(fate, move |inner| inner.adjust(&counter, Change::Reset))
    }
}

/// What a request owes: what it took first, and then what it charged.
struct Request {
    number: u64,
    store: StoreId,
    parts: Vec<Taken>,
}

impl Request {
    fn owes(&self) -> u64 {
        self.parts.iter().map(|part| part.units).sum()
    }
}

/// What requests owe for a key.
#[derive(Default)]
struct Owed {
    open: Vec<Request>,
    /// Of requests that have ended.
    ended: u64,
    /// Metered charges on their way.
    metered: u64,
    /// Taken by other processes.
    others: u64,
    /// Admitted by the hybrid store itself, ever.
    locally: u64,
    /// Requests from before a reset.
    void: Vec<Request>,
    resets: u64,
    is_resetting: bool,
}

impl Owed {
    fn sum(&self) -> u64 {
        self.open.iter().map(Request::owes).sum::<u64>() + self.ended
    }
}

struct History {
    rough: Rough,
    hybrid: HybridStore,
    rng: Rng,
    quota: Quota,
    keys: Vec<Arc<Mutex<Owed>>>,
    requests: u64,
    counts: [u64; 4],
}

impl History {
    fn new(quota: Quota, mut rng: Rng) -> Self {
        let start = Instant::now();
        let clock = move || MONTH * 700 + start.elapsed();
        let inner = MemoryStore::builder().with_clock(clock).build();
        let rough = Rough {
            inner,
            rng: Arc::new(Mutex::new(rng.fork())),
            misbehaves: Arc::new(AtomicBool::new(true)),
            meters: Arc::default(),
            charges: Arc::default(),
        };
        // Few keys find room in some histories.
        let capacity = if rng.bool() { 10_000 } else { 3 };
        let builder = HybridStore::builder(rough.clone()).tick(ms(70)).allowance(ALLOWANCE).capacity(capacity);
        let hybrid = builder.build().expect("the settings are valid");
        let keys = (0..KEYS).map(|_| Arc::default()).collect();
        Self { rough, hybrid, rng, quota, keys, requests: 0, counts: [0; 4] }
    }

    fn counter(&self, key: usize) -> Counter {
        Counter::new("policy".try_into().expect("a valid name"), Key::new("key", key.to_string()), self.quota)
    }

    async fn step(&mut self) {
        let key = self.rng.usize(..self.keys.len());
        match self.rng.u32(..100) {
            0..40 => self.request(key),
            40..52 => self.charge(key),
            52..72 => self.refund(key),
            72..79 => self.end(key),
            79..81 if key % 2 == 1 => self.take_elsewhere(key),
            81 => self.reset(key),
            _ => sleep(ms(self.rng.u64(..30))).await,
        }
    }

    fn request(&mut self, key: usize) {
        let (cost, owed) = (self.rng.u64(1..5), Arc::clone(&self.keys[key]));
        self.requests += 1;
        let number = self.requests;
        let (resets, before) = {
            let owed = lock(&owed);
            (owed.resets, owed.is_resetting)
        };
        match self.hybrid.decide(&[Check::new(self.counter(key), cost)], Ask::default()) {
            Answer::Ready(decided) => {
                let decided = decided.expect("it was admitted here");
                assert_eq!(decided.decision.source(), Source::Lease);
                self.counts[0] += 1;
                let mut owed = lock(&owed);
                let (used, more) = (owed.sum() + owed.metered + owed.others, if key % 2 == 1 { ALLOWANCE } else { 0 });
                assert!(used + cost <= LIMIT + more, "{cost} units were admitted for key {key} over {used}");
                owed.locally += cost;
                add(&mut owed, number, &decided, false);
            }
            Answer::Pending(decided) => drop(tokio::spawn(async move {
                let Ok(decided) = decided.await else { return };
                let mut owed = lock(&owed);
                let is_void = before || owed.is_resetting || owed.resets != resets;
                if decided.decision.is_allowed() {
                    if decided.decision.source() == Source::Lease {
                        owed.locally += cost;
                    }
                    add(&mut owed, number, &decided, is_void);
                }
            })),
        }
    }

    fn charge(&mut self, key: usize) {
        let (units, owed) = (self.rng.u64(1..9), Arc::clone(&self.keys[key]));
        let mut locked = lock(&owed);
        let open = locked.open.len();
        if open == 0 || locked.is_resetting {
            return;
        }
        let request = &locked.open[self.rng.usize(..open)];
        let (number, last) = (request.number, request.parts.last().expect("there is one").clone());
        let (receipt, resets) = (Receipt::new(request.store, [last.clone()]), locked.resets);
        locked.metered += units;
        drop(locked);
        self.counts[1] += 1;
        self.rough.meters.store(true, Ordering::SeqCst);
        let settling = self.hybrid.settle(receipt, &[Settlement::new(0, Change::Charge(units))]);
        self.rough.meters.store(false, Ordering::SeqCst);
        tokio::spawn(async move {
            let applied = settling.wait().await;
            let mut owed = lock(&owed);
            if owed.resets == resets {
                owed.metered -= units;
            }
            let Ok(Some(Applied { units, stamp, .. })) = applied.map(|applied| applied.into_iter().next()) else {
                return;
            };
            let is_current = owed.resets == resets;
            if let Some(request) = owed.open.iter_mut().find(|request| request.number == number) {
                request.parts.push(last.units(units).stamp(stamp));
            } else if let Some(request) = owed.void.iter_mut().find(|request| request.number == number) {
                request.parts.push(last.units(units).stamp(stamp));
            } else if is_current {
                owed.ended += units;
            }
        });
    }

    fn refund(&mut self, key: usize) {
        let mut owed = lock(&self.keys[key]);
        let owed = &mut *owed;
        let requests = if self.rng.u32(..4) == 0 { &mut owed.void } else { &mut owed.open };
        if requests.is_empty() {
            return;
        }
        let place = self.rng.usize(..requests.len());
        let request = &mut requests[place];
        let last = request.parts.last_mut().expect("there is one");
        if last.units == 0 {
            return;
        }
        let units = self.rng.u64(1..=last.units);
        let receipt = Receipt::new(request.store, [last.clone()]);
        last.units -= units;
        if last.units == 0 && request.parts.len() > 1 {
            request.parts.pop();
        }
        self.counts[2] += 1;
        drop(self.hybrid.settle(receipt, &[Settlement::new(0, Change::Refund(units))]));
    }

    fn end(&mut self, key: usize) {
        let mut owed = lock(&self.keys[key]);
        if !owed.open.is_empty() {
            let place = self.rng.usize(..owed.open.len());
            let request = owed.open.swap_remove(place);
            owed.ended += request.owes();
        }
    }

    fn take_elsewhere(&mut self, key: usize) {
        let mut owed = lock(&self.keys[key]);
        let check = Check::new(self.counter(key), 3);
        let Answer::Ready(Ok(decided)) = self.rough.inner.decide(&[check], Ask::default()) else {
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
        locked.is_resetting = true;
        let void = std::mem::take(&mut locked.open);
        locked.void.extend(void);
        drop(locked);
        let resetting = self.hybrid.adjust(&self.counter(key), Change::Reset);
        tokio::spawn(async move {
            resetting.wait().await.expect("it is answered");
            let mut owed = lock(&owed);
            (owed.is_resetting, owed.ended, owed.others, owed.metered) = (false, 0, 0, 0);
            owed.resets += 1;
            let void = std::mem::take(&mut owed.open);
            owed.void.extend(void);
        });
    }

    /// Has all debts paid, and compares what was counted with what is owed.
    async fn compare(&mut self) {
        self.rough.misbehaves.store(false, Ordering::SeqCst);
        sleep(Duration::from_secs(3)).await;
        self.hybrid.close().await.expect("the store answers");
        sleep(Duration::from_secs(1)).await;
        for key in 0..self.keys.len() {
            let (owed, counter) = (lock(&self.keys[key]), self.counter(key));
            let ample = match self.quota.algorithm() {
                tollgate::Algorithm::SlidingLog => Quota::sliding_log(AMPLE, MONTH),
                _ => Quota::fixed_window(AMPLE, MONTH),
            };
            let look = Check::new(Counter::new(counter.policy().clone(), counter.key().clone(), ample), 0);
            let Answer::Ready(Ok(looked)) = self.rough.inner.decide(&[look], Ask::default()) else {
                panic!("memory answers")
            };
            let taken = AMPLE - looked.decision.outcomes()[0].remaining();
            let charges = lock(&self.rough.charges).get(&counter).copied().unwrap_or_default();
            let sum = owed.sum() + owed.others;
            assert!(taken + charges.cut >= sum, "key {key}: {taken} counted, {sum} owed, {charges:?}");
            // What is sent again was sent before, without an answer.
            let most = owed.locally + charges.unanswered;
            assert!(charges.applied <= most, "key {key}: {} admitted here, {charges:?}", owed.locally);
            assert!(charges.applied <= 2 * owed.locally, "key {key}: {} admitted here, {charges:?}", owed.locally);
        }
    }
}

fn add(owed: &mut Owed, number: u64, decided: &Decided, is_void: bool) {
    let (store, parts) = (decided.receipt.store(), decided.receipt.taken().to_vec());
    let request = Request { number, store, parts };
    if is_void { owed.void.push(request) } else { owed.open.push(request) }
}

async fn run(quota: Quota) {
    let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    run_seed(quota, seed).await;
}

async fn run_seed(quota: Quota, seed: u64) {
    println!("{quota}: seed {seed}");
    let (mut rng, mut operations, mut counts) = (Rng::with_seed(seed), 0, [0; 4]);
    while operations < OPERATIONS {
        let mut history = History::new(quota, rng.fork());
        for _ in 0..IN_A_HISTORY {
            history.step().await;
        }
        history.compare().await;
        operations += IN_A_HISTORY;
        counts.iter_mut().zip(history.counts).for_each(|(sum, count)| *sum += count);
    }
    let [locally, charges, refunds, resets] = counts;
    println!("{operations}: {locally} admitted here, {charges} charges, {refunds} refunds, {resets} resets");
    assert!(locally > 500 && charges > 500 && refunds > 500 && resets > 100, "too little happened");
}

#[tokio::test(start_paused = true)]
async fn a_hybrid_store_over_a_rough_one_counts_what_is_owed_in_a_fixed_window() {
    run(Quota::fixed_window(LIMIT, MONTH)).await;
}

#[tokio::test(start_paused = true)]
async fn a_hybrid_store_over_a_rough_one_counts_what_is_owed_in_a_sliding_log() {
    run(Quota::sliding_log(LIMIT, MONTH)).await;
}

/// What remained before a decision was learnt after it, from a look asked for while the decision was on its way.
#[tokio::test(start_paused = true)]
async fn a_look_asked_for_during_a_decision_tells_nothing_after_it() {
    run_seed(Quota::sliding_log(LIMIT, MONTH), 11_317_204_047_795_662_323).await;
}
