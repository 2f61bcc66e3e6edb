//! Clients that were denied together do not return together.

use std::time::Duration;

use super::herd;

const WINDOW: Duration = Duration::from_secs(2);

/// The time in which nine of ten happen.
fn spread(times: &[Duration]) -> Duration {
    times[times.len() * 95 / 100].saturating_sub(times[times.len() * 5 / 100])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_200_clients_that_were_denied_together_few_return_together() {
    let attempts = herd::run(200, WINDOW, Duration::from_secs(5)).await;
    // If the machine is slow, a few first attempts come after the reset, and are allowed.
    assert!(attempts.denied.len() >= 190, "{} are denied", attempts.denied.len());
    // `Retry-After` is 1 or 2, by when it was denied.
    assert!(attempts.again[0] >= Duration::from_secs(1), "{:?}", attempts.again[0]);
    // Without jitter, they would return as far apart as they were denied.
    let (denied, again) = (spread(&attempts.denied), spread(&attempts.again));
    assert!(again > denied + WINDOW / 4, "denied within {denied:?}, they return within {again:?}");
}
