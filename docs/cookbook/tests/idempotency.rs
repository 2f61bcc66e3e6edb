include!("rig.rs");

use axum::http::Request;
use tollgate::test_util::ManualClock;

/// Stands in for a store of responses.
mod idempotency {
    use std::collections::HashMap;
    use std::sync::{LazyLock, Mutex};

    use axum::extract::Request;
    use axum::middleware::Next;
    use axum::response::{IntoResponse, Response};

    static KEPT: LazyLock<Mutex<HashMap<String, String>>> = LazyLock::new(Mutex::default);

    pub async fn replay(request: Request, next: Next) -> Response {
        let key = request.headers()["idempotency-key"].to_str().expect("text").to_owned();
        let kept = KEPT.lock().expect("not poisoned").get(&key).cloned();
        if let Some(kept) = kept {
            return ([("idempotent-replayed", "true")], kept).into_response();
        }
        let body = axum::body::to_bytes(next.run(request).await.into_body(), 1_000).await.expect("a body");
        let body = String::from_utf8(body.to_vec()).expect("text");
        KEPT.lock().expect("not poisoned").insert(key, body.clone());
        body.into_response()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let clock = ManualClock::new();
    let app = app(memory(&clock));
    let order = async |key: &str| {
        let request = Request::post("/orders").header("idempotency-key", key);
        let response = send(&app, "192.0.2.1", request, "ada").await;
        let is_replay = response.headers().contains_key("idempotent-replayed");
        (response.status().as_u16(), is_replay)
    };

    // Nine orders, each sent three times.
    for number in 1..=9 {
        assert_eq!(order(&format!("key-{number}")).await, (200, false));
        for _ in 0..2 {
            assert_eq!(order(&format!("key-{number}")).await, (200, true));
        }
    }
    assert_eq!(order("key-10").await, (200, false));

    // Nothing is left, for retries too. What was denied may be sent again, and is new then.
    assert_eq!(order("key-11").await, (429, false));
    assert_eq!(order("key-1").await, (429, false));
    clock.advance(std::time::Duration::from_secs(6));
    assert_eq!(order("key-1").await, (200, true));
    assert_eq!(order("key-11").await, (200, false));
    assert_eq!(order("key-12").await, (429, false));

    // The limit of requests ends a loop of retries.
    clock.advance(std::time::Duration::from_secs(6));
    let mut replays = 0;
    while order("key-1").await.0 == 200 {
        replays += 1;
        assert!(replays < 60);
    }
    assert!(replays > 30, "{replays}");
}
