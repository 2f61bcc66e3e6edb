//! `examples/policies.toml` in effect.

use http::Method;

use super::harness::Server;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/policies.toml");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const CLIENT: &str = "x-forwarded-for";

fn start() -> Server {
    Server::start(&["--config", FILE])
}

async fn login(server: &Server, client: &str, body: &'static str) -> u16 {
    server.ask(Method::POST, "/login", &[FORM, (CLIENT, client)], body).await.status().as_u16()
}

#[tokio::test]
async fn only_wrong_passwords_count_and_the_sixth_try_is_refused() {
    let server = start();
    let (right, wrong) = ("password=correct+horse", "password=guess");
    for _ in 0..8 {
        assert_eq!(login(&server, "203.0.113.1", right).await, 200);
    }
    for _ in 0..5 {
        assert_eq!(login(&server, "203.0.113.1", wrong).await, 401);
    }
    let refused = server.ask(Method::POST, "/login", &[FORM, (CLIENT, "203.0.113.1")], wrong).await;
    assert_eq!(refused.status(), 429);
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((800..=900).contains(&wait), "{wait}");
    assert_eq!(login(&server, "203.0.113.1", right).await, 429, "a late right guess does not help");
    assert_eq!(login(&server, "203.0.113.2", right).await, 200, "nobody else is concerned");
    assert_eq!(server.status("/", &[(CLIENT, "203.0.113.1")]).await, 200, "nor any other route");
}

#[tokio::test]
async fn a_plan_sets_the_limit_of_its_api_keys() {
    let server = start();
    for (key, plan, expected) in [("a", "", "20"), ("b", "free", "100"), ("c", "pro", "5000"), ("d", "Pro", "20")] {
        let response = server.ask(Method::GET, "/", &[("x-api-key", key), ("x-plan", plan)], "").await;
        let told = response.headers()["ratelimit-policy"].to_str().unwrap();
        assert!(told.contains(&format!("\"plan\";q={expected};w=3600")), "{key} {plan}: {told}");
    }
}

#[tokio::test]
async fn an_allowed_api_key_has_no_limit_and_others_do() {
    let server = start();
    for (key, after_20) in [("monitoring", 200), ("other", 429)] {
        for _ in 0..20 {
            assert_eq!(server.status("/", &[("x-api-key", key)]).await, 200);
        }
        assert_eq!(server.status("/", &[("x-api-key", key)]).await, after_20, "{key}");
    }
}

#[tokio::test]
async fn addresses_are_allowed_and_denied_behind_the_proxy() {
    let server = start();
    assert_eq!(server.status("/", &[(CLIENT, "198.51.100.7")]).await, 403);
    for client in ["192.0.2.7", "203.0.113.7"] {
        let response = server.ask(Method::GET, "/", &[(CLIENT, client)], "").await;
        let told = response.headers().get("ratelimit-policy").map_or("", |told| told.to_str().unwrap());
        assert_eq!(told.contains("\"ip\""), client == "203.0.113.7", "{client}: {told}");
    }
}

#[tokio::test]
async fn half_is_kept_for_critical_requests() {
    let server = start();
    for number in 0..20 {
        let expected = if number < 5 { 204 } else { 429 };
        assert_eq!(server.status("/status/204", &[]).await, expected, "{number}");
    }
    assert_eq!(server.status("/status/204", &[("x-priority", "low")]).await, 429);
    for _ in 0..5 {
        assert_eq!(server.status("/status/204", &[("x-priority", "high")]).await, 204);
    }
    assert_eq!(server.status("/status/204", &[("x-priority", "high")]).await, 429, "all is used");
}

#[tokio::test]
async fn a_search_costs_what_its_header_says() {
    let server = start();
    let costs = [("60", 200), ("60", 429), ("30", 200), ("x", 200), ("9", 200), ("2", 429), ("101", 429)];
    for (cost, expected) in costs {
        let response = server.ask(Method::GET, "/search", &[("x-cost", cost)], "").await;
        assert_eq!(response.status(), expected, "{cost}");
        assert_eq!(response.headers().contains_key("retry-after"), expected == 429 && cost != "101", "{cost}");
    }
}

#[tokio::test]
async fn what_is_on_trial_or_not_advertised_is_never_seen() {
    let server = start();
    for _ in 0..10 {
        let response = server.ask(Method::GET, "/", &[], "").await;
        assert_eq!(response.status(), 200);
        let told = response.headers()["ratelimit-policy"].to_str().unwrap();
        assert!(!told.contains("trial") && !told.contains("probing"), "{told}");
    }
    let (_, json) = server.get("/rate_limit").await;
    assert!(json.contains("\"ip\"") && !json.contains("trial") && !json.contains("probing"), "{json}");
}
