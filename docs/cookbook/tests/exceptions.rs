include!("rig.rs");

use axum::http::Request;
use tollgate::test_util::ManualClock;

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let app = app(memory(&ManualClock::new())).expect("a list of networks");
    for number in 1..=301 {
        let expected = if number <= 300 { 200 } else { 429 };
        assert_eq!(status(&app, "203.0.113.9", Request::get("/")).await, expected);
        assert_eq!(status(&app, "192.0.2.77", Request::get("/")).await, 200);
        assert_eq!(status(&app, "2001:db8:7::1", Request::get("/")).await, 200);
        assert_eq!(status(&app, "203.0.113.9", Request::get("/healthz")).await, 200);
    }
    // Only the proxy may say who the client is.
    let forwarded = |client| Request::get("/").header("x-forwarded-for", client);
    assert_eq!(status(&app, "10.0.0.1", forwarded("203.0.113.9")).await, 429);
    assert_eq!(status(&app, "10.0.0.1", forwarded("192.0.2.77")).await, 200);
    assert_eq!(status(&app, "203.0.113.9", forwarded("192.0.2.77")).await, 429);
}
