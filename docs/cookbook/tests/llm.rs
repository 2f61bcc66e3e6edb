include!("rig.rs");

use std::sync::OnceLock;

use axum::http::Request;
use tokio::sync::Semaphore;
use tollgate::test_util::ManualClock;

/// How many answers may end.
static MAY_END: OnceLock<Semaphore> = OnceLock::new();

/// Stands in for a model: each word of the prompt and of the answer is a token.
async fn model(prompt: &str, longest: u64) -> Option<(String, u64)> {
    MAY_END.get_or_init(|| Semaphore::new(0)).acquire().await.expect("never closed").forget();
    if prompt == "fail" {
        return None;
    }
    let words = longest.min(40);
    Some(("word ".repeat(words as usize), prompt.split(' ').count() as u64 + words))
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let app = app(memory(&ManualClock::new())).expect("a valid policy");
    let ask = async |prompt: &str, longest: u64| {
        let body = format!(r#"["{prompt}", {longest}]"#);
        let request =
            Request::post("/answer").header("authorization", "Bearer ada").header("content-type", "application/json");
        send(&app, "192.0.2.1", request.header("content-length", body.len()), &body).await
    };
    let left = |response: &axum::response::Response| -> u64 {
        let left = response.headers()["x-ratelimit-remaining"].to_str().ok();
        left.and_then(|left| left.parse().ok()).expect("a number")
    };
    let may_end = MAY_END.get_or_init(|| Semaphore::new(0));

    // Three words and 40 of the answer, instead of the 1,005 that were reserved.
    may_end.add_permits(1);
    assert_eq!(left(&ask("how are you", 2_000).await), 10_000 - 43);

    // A failure costs nothing.
    may_end.add_permits(1);
    let failed = ask("fail", 1_000).await;
    assert_eq!((failed.status().as_u16(), left(&failed)), (502, 10_000 - 43));

    // Eight answers at once reserve 1,006 each. A short one leaves what it cannot use to a ninth, before it has ended.
    let mut answers: Vec<_> = (0..8).map(|_| Box::pin(ask("how are you", 1_000))).collect();
    answers.push(Box::pin(ask("how are you", 10)));
    answers.push(Box::pin(ask("how are you", 1_000)));
    for answer in &mut answers {
        assert!(tokio::time::timeout(Duration::ZERO, answer).await.is_err());
    }
    assert_eq!(ask("how are you", 1_000).await.status(), 429);

    // At the end each has paid what it used.
    may_end.add_permits(11);
    for answer in futures::future::join_all(answers).await {
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(left(&ask("bye", 1).await), 10_000 - 43 - 9 * 43 - 13 - 2);
}
