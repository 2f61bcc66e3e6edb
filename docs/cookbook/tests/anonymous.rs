include!("rig.rs");

use axum::http::HeaderMap;
use tollgate::test_util::ManualClock;

/// Stands in for a signature that is verified.
fn verified(headers: &HeaderMap) -> Option<User> {
    let user = headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer signed-")?;
    Some(User(user.to_owned()))
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let app = app(memory(&ManualClock::new()));
    let get = |token: &str| Request::get("/").header("authorization", format!("Bearer {token}"));

    // Made-up tokens and requests without one share the limit of their address.
    for number in 1..=61 {
        let request = if number % 2 == 0 { Request::get("/") } else { get(&format!("made-up-{number}")) };
        assert_eq!(status(&app, "192.0.2.1", request).await, if number <= 60 { 200 } else { 429 });
    }
    assert_eq!(status(&app, "192.0.2.2", Request::get("/")).await, 200);

    // Users have their own limits at the same address, and the same ones at other addresses.
    for number in 1..=601 {
        let from = ["192.0.2.1", "192.0.2.2"][number % 2];
        assert_eq!(status(&app, from, get("signed-ada")).await, if number <= 600 { 200 } else { 429 });
    }
    assert_eq!(status(&app, "192.0.2.1", get("signed-bob")).await, 200);
}
