//! What operators are told.

use tokio::time::{advance, sleep};
use tollgate::{Error, OnFailure};
use tracing::Level;

use super::rig::{MANY, Mood, Moody, decided_by, layer, ms};
use crate::support::log::Log;
use crate::support::soon::soon;

#[tokio::test(start_paused = true)]
async fn a_change_is_one_line_however_many_requests_there_are() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let store = Moody::new(Mood::Fails);
    let layer = layer(&store, MANY).on_failure(OnFailure::Allow).allow_for(ms(5_000));
    let assert_counts = |expected: [usize; 3]| {
        let codes = ["store_unavailable", "outage_exceeds", "store_available"];
        assert_eq!(codes.map(|code| log.count(&format!("code=\"{code}\""))), expected, "{}", log.text());
    };
    for outage in 1..=2 {
        store.becomes(Mood::Fails);
        for _ in 0..100 {
            decided_by(&layer).await;
            advance(ms(100)).await;
        }
        assert_counts([outage, outage, outage - 1]);
        store.becomes(Mood::Decides);
        advance(ms(500)).await;
        for _ in 0..100 {
            decided_by(&layer).await;
        }
        assert_counts([outage; 3]);
    }
    assert!(log.count("") <= 2 * 4 && log.text().contains("failed_for=10.5s"), "{}", log.text());
}

/// As where Redis is back without its users.
#[tokio::test(start_paused = true)]
async fn another_cause_of_the_same_outage_is_one_more_line() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let store = Moody::new(Mood::Fails);
    let layer = layer(&store, MANY);
    for cause in ["refused", "wrong password"] {
        store.fail_with(move || Error::connection("cannot connect", cause));
        for _ in 0..100 {
            decided_by(&layer).await;
            advance(ms(100)).await;
        }
    }
    let lines = log.lines("code=\"store_unavailable\"");
    assert!(
        lines.len() == 2 && lines[0].contains("breaker opened") && lines[1].contains("wrong password"),
        "{lines:?}"
    );
}

/// As where more policies apply to a request than its store decides together: the limits would not be shared, and nobody
/// would know.
#[tokio::test]
async fn requests_that_the_store_never_decides_are_a_line_with_the_cause() {
    let log = Log::default();
    let _noting = log.note(Level::WARN);
    let layer = layer(&Moody::new(Mood::Refuses), MANY);
    // Other tests of this process log such lines, too, of which there is one a second.
    soon(async {
        while log.lines("store_failed").is_empty() {
            decided_by(&layer).await;
            sleep(ms(10)).await;
        }
    })
    .await;
    assert!(log.lines("store_failed")[0].contains("limit 0"), "{}", log.text());
}
