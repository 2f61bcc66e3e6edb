//! Clients that were denied together do not return together.

use std::time::Duration;

use super::herd;

const WINDOW: Duration = Duration::from_secs(2);

/// Most times in any 100 ms.
fn busiest(times: &[Duration]) -> usize {
    let within =
        |from: &Duration| times.iter().filter(|at| (*from..*from + Duration::from_millis(100)).contains(at)).count();
    times.iter().map(within).max().expect("some")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_clients_after_a_reset_few_return_at_once() {
    let without = herd::run(200, WINDOW, Duration::ZERO).await;
    let with = herd::run(200, WINDOW, Duration::from_secs(5)).await;
    for attempts in [&without, &with] {
        // `Retry-After` is 1 or 2 by when it was denied.
        assert!(attempts.again[0] >= Duration::from_secs(1), "{:?}", attempts.again[0]);
        assert!(attempts.denied[199] < WINDOW, "the machine is too slow: {:?}", attempts.denied[199]);
    }
    let (without, with) = (busiest(&without.again), busiest(&with.again));
    assert!(with * 2 < without, "at once are {without} without jitter and {with} with it");
}
