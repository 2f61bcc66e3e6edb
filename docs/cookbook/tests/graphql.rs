include!("rig.rs");

use axum::http::Request;
use tollgate::test_util::ManualClock;

/// Stands in for a schema: `first` of each query is the number of rows at most, and there are seven rows.
mod schema {
    pub fn complexity(query: &str) -> Option<u64> {
        query.strip_prefix("items first ")?.parse().ok()
    }

    pub async fn execute(query: &str) -> (Vec<u64>, u64) {
        let rows: Vec<_> = (0..7).take(complexity(query).unwrap_or(0) as usize).collect();
        let used = rows.len() as u64;
        (rows, used)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let app = app(memory(&ManualClock::new()));
    let ask = async |user: &str, query: &str| {
        let request =
            Request::post("/graphql").extension(User(user.to_owned())).header("content-type", "application/json");
        send(&app, "192.0.2.1", request, &format!("{query:?}")).await
    };

    // Seven points of the 100 that were taken.
    let response = ask("ada", "items first 100").await;
    assert_eq!(response.status(), 200);
    let fields = response.headers()["ratelimit"].to_str().expect("text");
    assert!(fields.contains(r#""points";r=993"#) && fields.contains(r#""ip";r=299"#), "{fields}");

    // More than is left has a wait, and more than a minute ever has has none.
    let late = ask("ada", "items first 1000").await;
    assert_eq!(late.status(), 429);
    assert_eq!(late.headers()["retry-after"], "1");
    let never = ask("ada", "items first 1001").await;
    assert_eq!(never.status(), 429);
    assert!(!never.headers().contains_key("retry-after"));

    // Neither took points, of this user or of others.
    assert_eq!(ask("ada", "items first 993").await.status(), 200);
    assert_eq!(ask("bob", "items first 1000").await.status(), 200);
    assert_eq!(ask("bob", "mutation").await.status(), 400);
}
