include!("rig.rs");

use axum::http::Request;
use tollgate::test_util::ManualClock;

/// Stands in for a CAPTCHA and for cookies that are signed.
mod captcha {
    use super::HeaderMap;

    pub const FORM: &str = "<form method=post action=/challenge>";

    pub async fn verify(solution: &str) -> Option<String> {
        solution
            .strip_prefix("right ")
            .map(|person| format!("pass=signed-{person}; HttpOnly; Secure; SameSite=Lax; Max-Age=3600"))
    }

    pub fn pass(headers: &HeaderMap) -> Option<String> {
        Some(headers.get("cookie")?.to_str().ok()?.strip_prefix("pass=signed-")?.to_owned())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let app = app(memory(&ManualClock::new()));
    let page = || Request::get("/").header("accept", "text/html,*/*;q=0.8");
    for _ in 1..=60 {
        assert_eq!(status(&app, "192.0.2.1", page()).await, 200);
    }

    // A browser gets the challenge, which no cache keeps, and a script the usual denial.
    let denied = send(&app, "192.0.2.1", page(), "").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["cache-control"], "no-store");
    assert_eq!(denied.headers()["retry-after"], "1");
    assert_eq!(denied.headers()["content-type"], "text/html; charset=utf-8");
    let body = axum::body::to_bytes(denied.into_body(), 1_000).await.expect("a body");
    assert_eq!(body, captcha::FORM);
    let denied = send(&app, "192.0.2.1", Request::get("/").header("accept", "*/*"), "").await;
    assert_eq!(
        (denied.status().as_u16(), denied.headers()["content-type"].as_bytes()),
        (429, b"application/problem+json".as_slice())
    );
    assert_eq!(status(&app, "192.0.2.1", page().header("cookie", "pass=made-up")).await, 429);

    // Who solves it is limited apart from the others at this address.
    assert_eq!(send(&app, "192.0.2.1", Request::post("/challenge"), "wrong").await.status(), 403);
    let solved = send(&app, "192.0.2.1", Request::post("/challenge"), "right ada").await;
    assert_eq!((solved.status().as_u16(), solved.headers()["location"].as_bytes()), (303, b"/".as_slice()));
    let cookie = solved.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned();
    for number in 1..=601 {
        let response = send(&app, "192.0.2.1", page().header("cookie", &cookie), "").await;
        assert_eq!(response.status(), if number <= 600 { 200 } else { 429 });
        if number > 600 {
            assert_eq!(response.headers()["content-type"], "application/problem+json");
        }
    }
    for number in 3..=6 {
        let expected = if number <= 5 { 403 } else { 429 };
        assert_eq!(send(&app, "192.0.2.1", Request::post("/challenge"), "wrong").await.status(), expected);
    }
}
