//! Scripts have code of its own for what is usual: it comes to the same as the code for everything.

mod call;
mod rig;

use fastrand::Rng;

use self::call::{Call, Key};
use self::rig::Rig;
use crate::support::slow::many;

const CALLS: [usize; 2] = [2_000, 50_000];

/// Calls after which the keys are others.
const LIFE: usize = 20;

/// Makes calls on both sides, over the same keys in the same states.
fn compare(mut rig: Rig, keys: impl Fn(&mut Rng) -> Vec<Key>, call: impl Fn(&mut Rng, &[Key]) -> Call) {
    let mut rng = Rng::with_seed(0x0075_7375_616c);
    let (mut admitted, mut refused) = (0, 0);
    for _ in 0..many(CALLS) / LIFE {
        let keys = keys(&mut rng);
        let mut now_us = 1_700_000_000_000_000 + rng.u64(..1_000_000_000_000);
        rig.clear();
        for _ in 0..LIFE {
            now_us += [0, 1, 999, 1_000_000, rng.u64(..100_000_000)][rng.usize(..5)];
            let call = call(&mut rng, &keys);
            for (place, key) in keys.iter().enumerate() {
                if rng.u32(..4) == 0 {
                    rig.put(place, key.value(&mut rng, now_us).as_deref());
                }
            }
            let reply = rig.compare(&call, now_us);
            for flag in &reply[7..7 + call.checks()] {
                admitted += usize::from(*flag == 1);
                refused += usize::from(*flag == 0);
            }
        }
    }
    assert!(admitted > many(CALLS) / 10 && refused > many(CALLS) / 10, "{admitted} admitted, {refused} refused");
}

#[tokio::test]
async fn a_batch_of_usual_requests_comes_to_what_any_batch_does() {
    let rig = Rig::start("batch", "[5] = leaky_bucket,", ["room = room and ", "room = false and "]).await;
    compare(rig, |rng| (0..5).map(|_| Key::any(rng)).collect(), Call::batch);
}

#[tokio::test]
async fn usual_requests_of_one_check_each_come_to_what_any_do() {
    for (algorithm, name) in [(2, "token_bucket"), (5, "leaky_bucket")] {
        let of_it = format!("[{algorithm}] = {name},");
        let rig = Rig::start("singles", &of_it, ["room = room and ", "room = false and "]).await;
        let keys = |rng: &mut Rng| (0..5).map(|_| Key::of(rng, algorithm)).collect();
        compare(rig, keys, Call::singles);
    }
}

#[tokio::test]
async fn a_usual_check_alone_comes_to_what_any_check_does() {
    for (algorithm, name) in [(1, "fixed_window"), (2, "token_bucket"), (5, "leaky_bucket")] {
        let of_it = format!("[{algorithm}] = {name},");
        let rig = Rig::start("single", &of_it, ["local usual = ", "local usual = nil and "]).await;
        compare(rig, |rng| vec![Key::of(rng, algorithm)], Call::singles);
    }
}
