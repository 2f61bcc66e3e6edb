include!("rig.rs");

use axum::http::Request;
use axum::{Router, routing::get};
use tollgate::test_util::ManualClock;

/// Stands in for a database, which takes its time.
mod database {
    use std::io;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    pub static QUERIES: AtomicUsize = AtomicUsize::new(0);
    pub static IS_AWAY: AtomicBool = AtomicBool::new(false);

    async fn query<T>(result: T) -> io::Result<T> {
        QUERIES.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
        if IS_AWAY.load(Ordering::Relaxed) { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(result) }
    }

    pub async fn customer(api_key: &str) -> io::Result<Option<&'static str>> {
        query(match api_key {
            "key-1" | "key-2" => Some("acme"),
            "key-3" => Some("small"),
            _ => None,
        })
        .await
    }

    pub async fn requests_per_minute(customer: &str) -> io::Result<Option<u64>> {
        query((customer == "acme").then_some(100)).await
    }
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let app = Router::new().route("/", get(|| async {})).layer(limits(memory(&ManualClock::new())));
    let request = |api_key: &str| Request::get("/").header("x-api-key", api_key);
    let queries = || database::QUERIES.swap(0, std::sync::atomic::Ordering::Relaxed);

    // Two keys share the 100 of their customer, at once and by one query each for the keys, and one for the plan.
    let sent = (0..101).map(|number| status(&app, "192.0.2.1", request(["key-1", "key-2"][number % 2])));
    let statuses = futures::future::join_all(sent).await;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 100);
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 1);
    assert_eq!(queries(), 3);

    // A customer without a plan has the quota of the policy.
    let response = send(&app, "192.0.2.1", request("key-3"), "").await;
    assert_eq!(response.headers()["ratelimit-policy"], r#""ip";q=1000;w=60, "customer";q=60;w=60"#);
    assert_eq!(queries(), 2);

    // Unknown keys have the limit of the address, and cause no query after that.
    assert_eq!(status(&app, "192.0.2.1", Request::get("/")).await, 200);
    assert_eq!(queries(), 0);
    let made_up: Vec<_> = (1..=1_010).map(|number| format!("made-up-{number}")).collect();
    let mut denied = 0;
    for made_up in made_up.chunks(100) {
        let sent = made_up.iter().map(|api_key| status(&app, "192.0.2.9", request(api_key)));
        let statuses = futures::future::join_all(sent).await;
        denied += statuses.iter().filter(|status| **status == 429).count();
    }
    assert_eq!((denied, queries()), (10, 1_000));

    // Without the database, known customers are served as before, and all others share one limit.
    database::IS_AWAY.store(true, std::sync::atomic::Ordering::Relaxed);
    let response = send(&app, "192.0.2.1", request("key-1"), "").await;
    assert_eq!(response.headers()["retry-after"], "1");
    for number in 1..=61 {
        let response = send(&app, "192.0.2.2", request(&format!("new-{}", number % 2)), "").await;
        assert_eq!(response.status(), if number <= 60 { 200 } else { 429 });
    }
}
