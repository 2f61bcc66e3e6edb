//! `examples/policies.toml` in effect.

use http::{HeaderMap, Method};

use super::harness::Server;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/policies.toml");
const CLIENT: &str = "x-forwarded-for";

fn told(headers: &HeaderMap) -> &str {
    headers.get("ratelimit-policy").map_or("", |told| told.to_str().expect("ASCII"))
}

/// How often, a path, or of a log-in the password, whose headers, and the status of the responses.
type Row<'a> = (usize, &'static str, &'a [(&'a str, &'a str)], u16);

#[tokio::test]
async fn each_policy_of_the_example_file_does_what_it_says() {
    let server = Server::start(&["--config", FILE]);
    let (right, wrong) = ("password=correct+horse", "password=guess");
    let form = ("content-type", "application/x-www-form-urlencoded");
    let rows: [Row<'_>; 14] = [
        // Only wrong passwords count, and the sixth try is refused.
        (8, right, &[form, (CLIENT, "203.0.113.1")], 200),
        (5, wrong, &[form, (CLIENT, "203.0.113.1")], 401),
        (1, right, &[form, (CLIENT, "203.0.113.1")], 429),
        (1, right, &[form, (CLIENT, "203.0.113.2")], 200),
        // An allowed API key has no limit, and others do.
        (21, "/", &[(CLIENT, "203.0.113.3"), ("x-api-key", "monitoring")], 200),
        (20, "/", &[(CLIENT, "203.0.113.4"), ("x-api-key", "other")], 200),
        (1, "/", &[(CLIENT, "203.0.113.4"), ("x-api-key", "other")], 429),
        (1, "/", &[(CLIENT, "198.51.100.7")], 403),
        // Half is kept for critical requests.
        (5, "/status/204", &[], 204),
        (5, "/status/204", &[("x-priority", "low")], 429),
        (5, "/status/204", &[("x-priority", "high")], 204),
        (1, "/status/204", &[("x-priority", "high")], 429),
        // A search costs what its header says.
        (1, "/search", &[("x-cost", "60")], 200),
        (1, "/search", &[("x-cost", "60")], 429),
    ];
    for (place, (times, what, headers, status)) in rows.into_iter().enumerate() {
        for time in 0..times {
            let is_login = what.starts_with("password");
            let (method, path, body) = if is_login { (Method::POST, "/login", what) } else { (Method::GET, what, "") };
            let response = server.ask(method, path, headers, body).await;
            assert_eq!(response.status(), status, "row {place}, request {time}");
            let told = told(response.headers());
            assert!(!told.contains("trial") && !told.contains("probing"), "on trial or not advertised: {told}");
        }
    }
    for (key, plan, expected) in [("a", "", "20"), ("b", "free", "100"), ("c", "pro", "5000"), ("d", "Pro", "20")] {
        let response = server.ask(Method::GET, "/", &[("x-api-key", key), ("x-plan", plan)], "").await;
        let told = told(response.headers());
        assert!(told.contains(&format!("\"plan\";q={expected};w=3600")), "{key} {plan}: {told}");
    }
}
