use std::sync::Mutex;

use tokio::time::Instant;
use tollgate::MemoryStore;
use tollgate::test_util::ManualClock;

/// Stands in for an HTTP client.
mod client {
    use super::*;

    pub static CALLS: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());

    pub async fn post(customer: &str, event: &str) -> Option<Duration> {
        CALLS.lock().expect("not poisoned").push((customer.to_owned(), Instant::now()));
        (event == "too much").then_some(Duration::from_secs(30))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let clock = ManualClock::paused();
    let receivers = receivers(MemoryStore::builder().clock(clock).build());
    let start = Instant::now();

    // A burst of 60 for one receiver: the first is sent, 50 wait, and the rest belongs back into the queue.
    let burst = (0..60).map(|_| deliver(&receivers, "acme", "paid"));
    let (burst, other) = tokio::join!(futures::future::join_all(burst), deliver(&receivers, "other", "too much"));
    let waits: Vec<_> = burst.into_iter().map(|result| result.expect("a decision")).collect();
    assert!(waits[..51].iter().all(Option::is_none), "{waits:?}");
    let later = |wait: &Option<Duration>| wait.is_some_and(|wait| (1..=200).contains(&wait.as_millis()));
    assert!(waits[51..].iter().all(later), "{waits:?}");

    // The calls are 200 ms apart.
    let calls = client::CALLS.lock().expect("not poisoned");
    let acme: Vec<_> = calls.iter().filter(|(customer, _)| customer == "acme").collect();
    assert_eq!(acme.len(), 51);
    for (number, (_, at)) in acme.iter().enumerate() {
        let turn = Duration::from_millis(200) * u32::try_from(number).expect("few calls");
        let late = (*at - start).checked_sub(turn).expect("no call is early");
        assert!(late < Duration::from_millis(10), "call {number} is {late:?} late");
    }

    // Another receiver waits for none of it, and says itself how long.
    assert_eq!(other.expect("a decision"), Some(Duration::from_secs(30)));
    let at = calls.iter().find(|(customer, _)| customer == "other").expect("a call").1;
    assert!(at - start < Duration::from_millis(10));
}
