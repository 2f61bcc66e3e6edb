include!("rig.rs");

use axum::http::Request;
use axum::{Router, routing::get};
use tollgate::test_util::ManualClock;

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let app = Router::new().route("/", get(|| async {})).layer(limits(memory(&ManualClock::new())));
    let request = |tenant: &str, user: &str, is_admin| {
        Request::get("/").extension(Caller { tenant: tenant.into(), user: user.into(), is_admin })
    };

    // A member has 250, and what is denied to it stays with the tenant.
    for number in 1..=300 {
        assert_eq!(
            status(&app, "192.0.2.1", request("acme", "ada", false)).await,
            if number <= 250 { 200 } else { 429 }
        );
    }
    // All members together have 900, and administrators the rest.
    for number in 251..=950 {
        let user = ["bob", "eve", "ida"][number % 3];
        assert_eq!(
            status(&app, "192.0.2.1", request("acme", user, false)).await,
            if number <= 900 { 200 } else { 429 }
        );
    }
    for number in 901..=1_001 {
        assert_eq!(
            status(&app, "192.0.2.1", request("acme", "root", true)).await,
            if number <= 1_000 { 200 } else { 429 }
        );
    }
    // Another tenant is another matter, also for a user with the same name.
    assert_eq!(status(&app, "192.0.2.1", request("other", "ada", false)).await, 200);
    let anonymous = send(&app, "192.0.2.1", Request::get("/"), "").await;
    assert_eq!(anonymous.headers()["ratelimit-policy"], r#""ip";q=3000;w=60"#);
}
