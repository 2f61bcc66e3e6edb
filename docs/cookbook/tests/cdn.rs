include!("rig.rs");

use axum::http::Request;
use tollgate::test_util::ManualClock;

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let app = app(memory(&ManualClock::new())).expect("valid addresses");
    let get = |path: &str, client: &str| Request::get(path).header("cdn-client-ip", client);

    // Both routes share the 300 of a client, and only private responses say what is left.
    let page = send(&app, "198.51.100.7", get("/page", "192.0.2.1"), "").await;
    assert_eq!(
        (page.status().as_u16(), page.headers()["cache-control"].as_bytes()),
        (200, b"public, max-age=60".as_slice())
    );
    assert!(page.headers().keys().all(|name| !name.as_str().contains("ratelimit")), "{:?}", page.headers());
    let account = send(&app, "198.51.100.8", get("/account", "192.0.2.1"), "").await;
    assert_eq!(account.headers()["x-ratelimit-remaining"], "298");
    assert_eq!(account.headers()["cache-control"], "private, no-cache");

    for _ in 3..=300 {
        assert_eq!(status(&app, "198.51.100.7", get("/page", "192.0.2.1")).await, 200);
    }
    for path in ["/page", "/account"] {
        let denied = send(&app, "198.51.100.7", get(path, "192.0.2.1"), "").await;
        assert_eq!(
            (denied.status().as_u16(), denied.headers()["cache-control"].as_bytes()),
            (429, b"no-store".as_slice())
        );
        assert_eq!(denied.headers()["retry-after"], "1");
    }

    // Others behind the CDN go on, and who evades it is counted by its own address.
    assert_eq!(status(&app, "198.51.100.7", get("/page", "192.0.2.2")).await, 200);
    for number in 1..=301 {
        let direct = status(&app, "203.0.113.9", get("/page", &format!("192.0.2.{}", number % 200))).await;
        assert_eq!(direct, if number <= 300 { 200 } else { 429 });
    }
}
