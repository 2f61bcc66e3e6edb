//! Random requests, decided by a B-tree and by the store in memory: not one differs.

use std::time::Duration;

use fastrand::Rng;
use tollgate::Quota;
use tollgate::store::{Ask, Change, Check, MaybeFuture, Mode, Settlement, Store};

use crate::Rig;
use crate::support::memory;
use crate::support::{check, counter};

const S: u64 = 1_000_000;
const REQUESTS: usize = 20_000;

fn quota(rng: &mut Rng) -> Quota {
    let (limit, window) = (rng.u64(1..20), Duration::from_secs(rng.u64(1..90)));
    match rng.u8(..6) {
        0 => Quota::fixed_window(limit, window),
        1 => Quota::sliding_window(limit, window),
        2 => Quota::sliding_log(limit, window),
        3 => Quota::token_bucket(limit, window).burst(rng.u64(1..30)),
        4 => Quota::concurrency(limit).slot_ttl(window + Duration::from_secs(1)),
        _ => Quota::leaky_bucket(limit, window).queue(rng.u64(..10)),
    }
}

fn checks(rng: &mut Rng, quotas: &[Quota]) -> Vec<Check> {
    let one = |rng: &mut Rng| {
        let key = ["ada", "bob", "eve"][rng.usize(..3)];
        let cost = if rng.u8(..8) == 0 { 0 } else { rng.u64(1..6) };
        let mode = if rng.u8(..6) == 0 { Mode::Shadow } else { Mode::Enforce };
        let floor = if rng.u8(..4) == 0 { rng.u64(..4) } else { 0 };
        check(key, quotas[rng.usize(..quotas.len())], cost).mode(mode).floor(floor)
    };
    (0..rng.usize(1..5)).map(|_| one(rng)).collect()
}

fn ready<T>(answer: MaybeFuture<T>) -> T {
    match answer {
        MaybeFuture::Ready(value) => value,
        MaybeFuture::Pending(_) => panic!("neither store waits"),
    }
}

#[test]
fn a_b_tree_decides_like_the_store_in_memory_without_a_runtime() {
    let mut rng = Rng::with_seed(18);
    let (rig, mut requests, mut refused) = (Rig::new(Duration::ZERO), 0, 0);
    let memory = memory(&rig.clock);
    while requests < REQUESTS {
        let quotas: Vec<Quota> = (0..6).map(|_| quota(&mut rng)).collect();
        for quota in &quotas {
            for key in ["ada", "bob", "eve"] {
                ready(rig.store.adjust(&counter(key, *quota), Change::Reset)).expect("it is there");
                ready(memory.adjust(&counter(key, *quota), Change::Reset)).expect("it is there");
            }
        }
        for _ in 0..200 {
            rig.clock.advance(Duration::from_micros(rng.u64(..3 * S)));
            let checks = checks(&mut rng, &quotas);
            let one = ready(rig.store.decide(&checks, Ask::default())).expect("a decision");
            let other = ready(memory.decide(&checks, Ask::default())).expect("a decision");
            assert_eq!(
                format!("{:?}", one.decision),
                format!("{:?}", other.decision),
                "request {requests}: {checks:?}"
            );
            assert_eq!(
                format!("{:?}", one.receipt.items()),
                format!("{:?}", other.receipt.items()),
                "request {requests}: {checks:?}"
            );
            requests += 1;
            refused += usize::from(!one.decision.is_allowed());
            if rng.u8(..3) == 0 {
                let change = [Change::Refund, Change::Charge, Change::Renew][rng.usize(..3)](rng.u64(..6));
                let changes = [Settlement::new(rng.usize(..checks.len()), change)];
                let one = ready(rig.store.settle(one.receipt, &changes)).expect("it is there");
                let other = ready(memory.settle(other.receipt, &changes)).expect("it is there");
                assert_eq!(one, other, "after request {requests}: {changes:?} to {checks:?}");
            }
        }
    }
    assert!(refused > REQUESTS / 5 && refused < REQUESTS * 4 / 5, "{refused}");
}
