//! How many round trips a decision takes.

use std::time::{Duration, Instant};

use tollgate::Quota;

use crate::support::proxy::Proxy;
use crate::support::server::{Server, url};
use crate::support::{AMPLE, HOUR, check, database, decide, is_allowed, on};

/// In each direction, so a round trip takes twice as long, and all else next to nothing.
const DELAY: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admitted_request_takes_two_round_trips_and_a_refused_one_takes_one() {
    let server = Server::start();
    database(&server).await;
    let proxy = Proxy::start(server.port(), DELAY).await;
    let store = on(&url(proxy.port), AMPLE, 1).store().expect("a store");
    let quota = Quota::fixed_window(1, HOUR);
    let first = [check("api", "ada", quota), check("all", "all", Quota::fixed_window(100, HOUR))];
    assert!(is_allowed(decide(&store, &first).await), "it connects and prepares");
    let (bob, both) = (check("api", "bob", quota), first[1].clone());
    for (checks, expected) in [([bob.clone(), both.clone()], (true, 2)), ([bob, both.clone()], (false, 1))] {
        let start = Instant::now();
        let allowed = is_allowed(decide(&store, &checks).await);
        assert_eq!((allowed, round_trips(start)), expected, "{:?}", start.elapsed());
    }
    // The roll-back of the refused one is in the same round trip as the next begin.
    let start = Instant::now();
    assert!(is_allowed(decide(&store, &[both]).await));
    assert_eq!(round_trips(start), 2, "{:?}", start.elapsed());
}

fn round_trips(since: Instant) -> u128 {
    since.elapsed().as_millis() / (2 * DELAY).as_millis()
}
