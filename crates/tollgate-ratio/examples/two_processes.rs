//! Two processes with one limit of 1,000 requests a second, of which the first is offered 3,000 a second: after the first
//! ticks they admit the limit together, and no request has called anything.
//!
//! ```text
//! cargo run -p tollgate-ratio --example two_processes
//! ```

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tollgate::{Error, Key, Limiter, Quota, Rule};
use tollgate_ratio::{MemoryTally, RatioStore};

const TICK: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    // In a fleet, a `RedisStore` is the tally of all processes.
    let tally = MemoryTally::new();
    let process = || {
        let store = RatioStore::builder(tally.clone()).tick(TICK).build();
        Limiter::new(store, [Rule::new("all", Quota::per_second(1_000))])
    };
    let (busy, calm) = (process(), process());
    let everybody = Key::new("all", "all");
    let mut next = Instant::now();
    for second in 1..=5 {
        let mut admitted = [0_u32; 2];
        for _ in 0..100 {
            for (place, (limiter, requests)) in [(&busy, 30), (&calm, 5)].into_iter().enumerate() {
                for _ in 0..requests {
                    admitted[place] += u32::from(limiter.check(&everybody).await?.is_allowed());
                }
            }
            next += STEP;
            sleep_until(next).await;
        }
        let [of_busy, of_calm] = admitted;
        println!("second {second}: allowed {of_busy} of 3000 and {of_calm} of 500, {} together", of_busy + of_calm);
    }
    Ok(())
}
