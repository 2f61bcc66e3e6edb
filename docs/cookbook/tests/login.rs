include!("rig.rs");

use axum::http::Request;
use tollgate::test_util::{FailingStore, ManualClock};

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let clock = ManualClock::new();
    let store = FailingStore::new(memory(&clock));
    let app = app(store.clone()).expect("valid policies");
    let login = async |from: &str, account: &str, password: &str| {
        let request = Request::post("/login").header("content-type", "application/json");
        send(&app, from, request, &format!(r#"["{account}", "{password}"]"#)).await
    };

    // One address, three times in 15 minutes each. The third time it has failed 15 times, and is banned.
    for (round, wait) in [(1, "900"), (2, "900"), (3, "86400")] {
        for account in 1..=5 {
            let (right, wrong) = (format!("user-{account}"), format!("{round}-{account}"));
            assert_eq!(login("203.0.113.9", &right, "correct horse").await.status(), 200);
            assert_eq!(login("203.0.113.9", &wrong, "1234").await.status(), 401);
        }
        let denied = login("203.0.113.9", "user-1", "correct horse").await;
        assert_eq!(denied.status(), 429);
        assert_eq!(denied.headers()["retry-after"], wait);
        clock.advance(15 * MINUTE);
    }

    // One account, from many addresses.
    for host in 1..=20 {
        assert_eq!(login(&format!("198.51.100.{host}"), " Ada", "1234").await.status(), 401);
    }
    assert_eq!(login("198.51.100.21", "ada", "correct horse").await.status(), 429);
    assert_eq!(login("198.51.100.21", "bob", "correct horse").await.status(), 200);

    // Without the store the process counts by itself.
    store.fail();
    for number in 1..=6 {
        assert_eq!(login("192.0.2.1", "eve", "1234").await.status(), if number <= 5 { 401 } else { 429 });
    }
}
