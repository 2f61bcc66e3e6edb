//! Long traces of random requests: memory and Redis answer alike.

use std::time::Duration;

use fastrand::Rng;
use tollgate::store::{Change, Check, Deadline, Decided, Mode, Settlement};
use tollgate::{Decision, Quota};

use crate::algorithms::rows::{MS, S, micros};
use crate::algorithms::subject::{KEY, Subject};
use crate::support::checks::check;

const STEPS: usize = 600;
const SEED: u64 = 7;

/// Each unit takes a multiple of 10 s, so that no key dies of real time during the test.
const QUOTAS: [Quota; 5] = [
    Quota::fixed_window(6, Duration::from_secs(60)),
    Quota::fixed_window(20, Duration::from_secs(600)),
    Quota::token_bucket(6, Duration::from_secs(60)),
    Quota::token_bucket(6, Duration::from_secs(60)).burst(3),
    Quota::token_bucket(10, Duration::from_secs(600)).burst(15),
];

/// Mostly forward, sometimes back, now and then far.
fn later(rng: &mut Rng, now: u64) -> u64 {
    match rng.u64(0..20) {
        0 => now.saturating_sub(rng.u64(0..20) * 10 * S),
        1 => now + rng.u64(0..100) * 10 * S,
        2..10 => now + rng.u64(0..3) * 10 * S,
        _ => now,
    }
}

fn request(rng: &mut Rng) -> Vec<Check> {
    (0..rng.u64(1..4)).map(|_| one(rng)).collect()
}

fn one(rng: &mut Rng) -> Check {
    let quota = QUOTAS[rng.usize(..QUOTAS.len())];
    let cost = [0, 1, 1, 1, 2, 3, 7][rng.usize(..7)];
    let floor = [0, 0, 0, 2][rng.usize(..4)];
    let mode = if rng.u64(0..6) == 0 { Mode::Shadow } else { Mode::Enforce };
    check(KEY, quota, cost).floor(floor).mode(mode)
}

/// Asks both stores, which must answer alike, and settles what they decide.
async fn ask(both: &[Subject; 2], now: u64, checks: &[Check], changes: &[Settlement]) -> Decision {
    let [memory, redis] = both;
    memory.clock.set(now);
    redis.clock.set(now);
    let (ours, theirs) = (memory.decide(checks, Deadline::none()).await, redis.decide(checks, Deadline::none()).await);
    let told = |decided: &Decided| format!("{:?} {:?}", decided.decision, decided.receipt.taken());
    assert_eq!(told(&ours), told(&theirs), "at {now}: {checks:#?}");
    let decision = ours.decision.clone();
    memory.settle_all(ours, changes).await;
    redis.settle_all(theirs, changes).await;
    decision
}

/// Checks that a refused request is admitted when it was told to retry, and not before. Returns the
/// time then.
async fn assert_true(both: &[Subject; 2], now: u64, checks: &[Check], wait: Duration) -> u64 {
    let then = now + micros(wait);
    let early = ask(both, then - MS, checks, &[]).await;
    assert!(!early.is_allowed(), "at {now}, told to wait for {wait:?}, but less would do: {checks:#?}");
    let in_time = ask(both, then, checks, &[]).await;
    assert!(in_time.is_allowed(), "at {now}, told to wait for {wait:?}, in vain: {checks:#?}");
    then
}

#[tokio::test]
async fn memory_and_redis_answer_a_random_trace_alike_and_truly() {
    let both = [Subject::memory(), Subject::redis().await];
    let mut rng = Rng::with_seed(SEED);
    // Away from the ends of windows.
    let mut now = 100_000 * S + 5 * S;
    let mut waits = 0;
    for _ in 0..STEPS {
        now = later(&mut rng, now);
        let checks = request(&mut rng);
        let settlement = settlement(&mut rng, checks.len());
        let decision = ask(&both, now, &checks, &settlement).await;
        let enforced = checks.iter().all(|check| check.mode == Mode::Enforce);
        if let Some(wait) = decision.retry_after().filter(|_| enforced && rng.bool()) {
            now = assert_true(&both, now, &checks, wait).await;
            waits += 1;
        }
    }
    assert!(waits > STEPS / 20, "the trace refuses too little to tell: {waits} times");
}

fn settlement(rng: &mut Rng, checks: usize) -> Vec<Settlement> {
    let units = rng.u64(1..9);
    let change = if rng.u64(0..2) == 0 { Change::Refund(units) } else { Change::Charge(units) };
    let check = rng.usize(..checks);
    if rng.u64(0..4) == 0 { vec![Settlement::new(check, change)] } else { Vec::new() }
}
