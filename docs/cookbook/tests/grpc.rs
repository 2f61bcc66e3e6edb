include!("rig.rs");

use axum::http::{HeaderMap, Request};
use axum::{Router, routing::post};
use tollgate::test_util::ManualClock;

/// Stands in for a service: an order is as valid as the request says.
async fn create(request: HeaderMap) -> [(&'static str, &'static str); 2] {
    let status = if request.contains_key("x-invalid") { "3" } else { "0" };
    [("content-type", "application/grpc"), ("grpc-status", status)]
}

#[tokio::main(flavor = "current_thread")]
async fn test() {
    let clock = ManualClock::new();
    let app = Router::new().fallback(post(create)).layer(limits(memory(&clock)));
    let call = async |from: &str, method: &str, is_invalid: bool| {
        let mut request = Request::post(method).header("content-type", "application/grpc");
        if is_invalid {
            request = request.header("x-invalid", "1");
        }
        let response = send(&app, from, request, "").await;
        assert_eq!(response.status(), 200);
        let wait = response.headers().get("grpc-retry-pushback-ms").map(|wait| wait.to_str().expect("text").to_owned());
        (response.headers()["grpc-status"].to_str().expect("text").to_owned(), wait)
    };
    let status = |code: &str| (code.to_owned(), None);

    // Orders that fail cost nothing of the ten.
    for number in 1..=10 {
        assert_eq!(call("192.0.2.1", "/shop.Orders/Create", true).await, status("3"), "{number}");
        assert_eq!(call("192.0.2.1", "/shop.Orders/Create", false).await, status("0"), "{number}");
    }
    let denied = call("192.0.2.1", "/shop.Orders/Create", false).await;
    assert_eq!(denied, ("8".to_owned(), Some("6000".to_owned())));
    clock.advance(std::time::Duration::from_secs(6));
    assert_eq!(call("192.0.2.1", "/shop.Orders/Create", false).await, status("0"));

    // Each method has its own hundred, and all together, made-up ones too, have those of the address.
    for number in 1..=101 {
        let code = call("192.0.2.2", "/shop.Orders/List", false).await.0;
        assert_eq!(code, if number <= 100 { "0" } else { "8" });
    }
    for number in 101..=301 {
        let code = call("192.0.2.2", &format!("/made.Up/M{number}"), false).await.0;
        assert_eq!(code, if number <= 300 { "0" } else { "8" });
    }
}
