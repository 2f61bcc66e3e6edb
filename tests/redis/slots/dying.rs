//! Renewals, while a process lives, and of all slots in few calls.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::time::sleep;
use tollgate::{Key, Quota};

use super::{ada, hold, left, limiter, until_left};
use crate::support::server::RedisServer;

/// The URL that a process holds slots by.
const VARIABLE: &str = "TOLLGATE_TEST_SLOTS";
const NAME: &str = "slots::dying::slots_of_a_process_are_renewed_until_it_is_killed_and_free_within_a_life";
const LIFE: Duration = Duration::from_secs(2);
const SLOTS: usize = 100;

/// Another process, which holds all slots, and dies with this one.
struct Other(Child);

impl Other {
    /// Runs this test in a process of its own until it holds all.
    fn start(url: &str) -> Self {
        let mut other = Command::new(env::current_exe().expect("it runs"));
        other.args([NAME, "--exact", "--nocapture"]).env(VARIABLE, url).stdout(Stdio::piped());
        let mut other = Self(other.spawn().expect("it starts again"));
        let lines = BufReader::new(other.0.stdout.take().expect("it is piped")).lines();
        let holds = lines.map_while(Result::ok).any(|line| line.contains("all are held"));
        assert!(holds, "it ended before it held all");
        other
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn slots_of_a_process_are_renewed_until_it_is_killed_and_free_within_a_life() {
    let quota = Quota::concurrency(SLOTS as u64).slot_ttl(LIFE);
    if let Ok(url) = env::var(VARIABLE) {
        let _held = hold(&limiter(&url, quota).await, SLOTS).await;
        println!("all are held");
        return sleep(Duration::from_secs(60)).await;
    }
    let redis = RedisServer::start();
    let other = Other::start(&redis.url());
    let limiter = limiter(&redis.url(), quota).await;
    let start = Instant::now();
    while start.elapsed() < 3 * LIFE {
        let (refused, _) = limiter.acquire(&ada()).await.expect("Redis is there");
        assert!(!refused.is_allowed(), "after {:?}", start.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    drop(other);
    let most = LIFE + LIFE / 8 + Duration::from_secs(1);
    let freed = until_left(&limiter, SLOTS as u64, most).await;
    println!("all slots of the dead process were free after {freed:?}");
    let _held = hold(&limiter, SLOTS).await;
    assert_eq!(left(&limiter).await, 0);
}

#[tokio::test]
async fn slots_of_one_key_and_of_three_hundred_are_renewed_by_a_few_calls() {
    let redis = RedisServer::start();
    let of_one = limiter(&redis.url(), Quota::concurrency(400).slot_ttl(LIFE)).await;
    let of_many = limiter(&redis.url(), Quota::concurrency(1).slot_ttl(LIFE)).await;
    let (ada, keys) = (ada(), (0..300).map(|number| Key::new("user", number.to_string())).collect::<Vec<_>>());
    let held =
        join_all((0..300).map(|_| of_one.acquire(&ada)).chain(keys.iter().map(|key| of_many.acquire(key)))).await;
    assert_eq!(left(&of_one).await, 100);
    let _: String = redis.ask(&["CONFIG", "RESETSTAT"]);
    sleep(2 * LIFE + LIFE / 4).await;
    let renewals = redis.scripts();
    // Each at least twice: one by one that would be 1,200 calls.
    assert!((8..=140).contains(&renewals), "{renewals} calls");
    assert_eq!(left(&of_one).await, 100, "they live on");
    for key in &keys {
        let look = of_many.peek(key).await.expect("Redis is there");
        assert_eq!(look.outcomes()[0].remaining(), 0);
    }
    drop(held);
}
