//! `examples/policies.toml` in effect.

use http::{HeaderMap, Method};

use super::harness::Server;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/policies.toml");
const CLIENT: &str = "x-forwarded-for";

fn told(headers: &HeaderMap) -> &str {
    headers.get("ratelimit-policy").map_or("", |told| told.to_str().expect("ASCII"))
}

/// How often, what, by whom, with which body, and the status of the responses.
type Row<'a> = (usize, (&'a str, &'a str), &'a [(&'a str, &'a str)], &'static str, u16);

#[tokio::test]
async fn each_policy_of_the_example_file_does_what_it_says() {
    let server = Server::start(&["--config", FILE]);
    let (right, wrong) = ("password=correct+horse", "password=guess");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let login = ("POST", "/login");
    let rows: [Row<'_>; 21] = [
        // Only wrong passwords count, and the sixth try is refused.
        (8, login, &[form, (CLIENT, "203.0.113.1")], right, 200),
        (5, login, &[form, (CLIENT, "203.0.113.1")], wrong, 401),
        (1, login, &[form, (CLIENT, "203.0.113.1")], right, 429),
        (1, login, &[form, (CLIENT, "203.0.113.2")], right, 200),
        (1, ("GET", "/"), &[(CLIENT, "203.0.113.1")], "", 200),
        // An allowed API key has no limit, and others do.
        (21, ("GET", "/"), &[(CLIENT, "203.0.113.3"), ("x-api-key", "monitoring")], "", 200),
        (20, ("GET", "/"), &[(CLIENT, "203.0.113.4"), ("x-api-key", "other")], "", 200),
        (1, ("GET", "/"), &[(CLIENT, "203.0.113.4"), ("x-api-key", "other")], "", 429),
        (1, ("GET", "/"), &[(CLIENT, "198.51.100.7")], "", 403),
        // Half is kept for critical requests.
        (5, ("GET", "/status/204"), &[], "", 204),
        (5, ("GET", "/status/204"), &[("x-priority", "low")], "", 429),
        (5, ("GET", "/status/204"), &[("x-priority", "high")], "", 204),
        (1, ("GET", "/status/204"), &[("x-priority", "high")], "", 429),
        // A search costs what its header says.
        (1, ("GET", "/search"), &[("x-cost", "60")], "", 200),
        (1, ("GET", "/search"), &[("x-cost", "60")], "", 429),
        (1, ("GET", "/search"), &[("x-cost", "30")], "", 200),
        (1, ("GET", "/search"), &[("x-cost", "x")], "", 200),
        (1, ("GET", "/search"), &[("x-cost", "9")], "", 200),
        (1, ("GET", "/search"), &[("x-cost", "2")], "", 429),
        (1, ("GET", "/search"), &[("x-cost", "101")], "", 429),
        (9, ("GET", "/"), &[(CLIENT, "192.0.2.7")], "", 200),
    ];
    for (place, (times, (method, path), headers, body, status)) in rows.into_iter().enumerate() {
        for time in 0..times {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let response = server.ask(method, path, headers, body).await;
            assert_eq!(response.status(), status, "row {place}, request {time}");
            let waits = status == 429 && !headers.contains(&("x-cost", "101"));
            assert_eq!(response.headers().contains_key("retry-after"), waits, "row {place}");
            let told = told(response.headers());
            assert!(!told.contains("trial") && !told.contains("probing"), "on trial or not advertised: {told}");
            if headers == [(CLIENT, "192.0.2.7")] {
                assert!(!told.contains("\"ip\""), "an allowed address: {told}");
            }
        }
    }
    for (key, plan, expected) in [("a", "", "20"), ("b", "free", "100"), ("c", "pro", "5000"), ("d", "Pro", "20")] {
        let response = server.ask(Method::GET, "/", &[("x-api-key", key), ("x-plan", plan)], "").await;
        let told = told(response.headers());
        assert!(told.contains(&format!("\"plan\";q={expected};w=3600")), "{key} {plan}: {told}");
        assert!(told.contains("\"ip\""), "{told}");
    }
    let (_, json) = server.get("/rate_limit").await;
    assert!(json.contains("\"ip\"") && !json.contains("trial") && !json.contains("probing"), "{json}");
}
