//! What a policy of a file does.

use std::time::Duration;

use futures::FutureExt;
use tollgate::Quota;
use tollgate_config::Config;
use tower::ServiceExt;

use super::policy;
use super::served::{limited, request, send, statuses};

/// Checks lines of a policy, requests, and the status of each.
async fn all_have(rows: &[(&str, &[&str], &[u16])]) {
    for (lines, requests, expected) in rows {
        assert_eq!(statuses(&policy(lines), requests).await, *expected, "{lines}: {requests:?}");
    }
}

#[tokio::test]
async fn each_option_of_a_policy_does_what_it_says() {
    let preflight = "OPTIONS / origin:https://a.example access-control-request-method:POST";
    let (low, high) = ("/ x-priority:low", "/ x-priority:high");
    let reserve = "limit = 5\nwindow = \"1h\"\nreserve = 0.4\ncritical = { header = \"X-Priority\", value = \"high\" }";
    // Ambiguous requests count together, though each entry of a list is compared with their addresses.
    let ambiguous = ["/ x:a x:b @203.0.113.1", "/ x:a x:c @203.0.113.2", "/ x:a x:b @203.0.113.3"];
    let listed = |list: &str| format!("limit = 2\nwindow = \"1h\"\nkey = \"header:x\"\n{list} = [\"198.51.100.0/24\"]");
    let routes = "limit = 1\nmethods = [\"POST\", \"PATCH\"]\nroutes = [\"/login\", \"/users/{id}\"]";
    all_have(&[
        ("cost = 3", &["/", "/"], &[200, 429]),
        // 0 only looks.
        ("limit = 1\ncost = 0\nmetered = true", &["/", "/"], &[200, 200]),
        ("limit = 2\nwindow = \"1h\"\ncost = \"header:x-cost\"", &["/ x-cost:0"; 3], &[200, 200, 429]),
        ("limit = 1\ncount = \"all\"", &["/ want:200"; 2], &[200, 429]),
        ("limit = 1\ncount = \"failures\"", &["/ want:200"; 2], &[200, 200]),
        ("limit = 1\ncount = \"failures\"", &["/ want:404"; 2], &[404, 429]),
        ("limit = 1\ncount = \"failures\"", &["/ want:503"; 2], &[503, 429]),
        ("limit = 1\ncount = \"successes\"", &["/ want:302"; 2], &[302, 429]),
        ("limit = 1\ncount = \"successes\"", &["/ want:401"; 2], &[401, 401]),
        ("limit = 1\ncount = \"served\"", &["/ want:503"; 2], &[503, 429]),
        ("limit = 1\ncount = [401, 403]", &["/ want:403"; 2], &[403, 429]),
        ("limit = 1\ncount = [401, 403]", &["/ want:404"; 2], &[404, 404]),
        (routes, &["POST /login", "PATCH /users/1", "POST /users/2"], &[200, 429, 429]),
        (routes, &["POST /login", "GET /login", "POST /other"], &[200, 200, 200]),
        ("limit = 1", &[preflight; 2], &[200, 429]),
        (&listed("allow"), &ambiguous, &[200, 200, 429]),
        (&listed("deny"), &ambiguous, &[200, 200, 429]),
        (reserve, &["/", low, "/ x-priority:HIGH", low, high, high, high], &[200, 200, 200, 429, 200, 200, 429]),
        ("limit = 1\nshadow = true", &["/"; 3], &[200; 3]),
        ("metered = true", &["/ real:5", "/"], &[200, 429]),
        ("metered = false", &["/ real:5", "/"], &[200, 200]),
        ("", &["/ real:5", "/"], &[200, 200]),
        ("limit = 1\nkey = \"header:a\"\nmissing_key = \"skip\"", &["/"; 2], &[200, 200]),
        ("limit = 1\nkey = \"header:a\"\nmissing_key = \"deny\"", &["/"; 2], &[403, 403]),
        ("limit = 1\nkey = \"header:a\"\nmissing_key = \"share\"", &["/"; 2], &[200, 429]),
    ])
    .await;
}

#[tokio::test]
async fn tiers_keep_algorithm_and_window_and_the_burst_or_queue_given() {
    let tiers = "limit = 1\nwindow = \"1h\"\ntiers = { by = \"header:p\", free = 2 }\n";
    let queue = "limit = 1\nwindow = \"1s\"\ntiers = { by = \"header:p\", free = 200 }\nalgorithm = \"leaky_bucket\"\n";
    all_have(&[
        // It holds the tier's limit.
        (tiers, &["/ p:free"; 3], &[200, 200, 429]),
        (&format!("{tiers}burst = 3"), &["/ p:free"; 4], &[200, 200, 200, 429]),
        (&format!("{tiers}algorithm = \"sliding_log\""), &["/ p:free"; 3], &[200, 200, 429]),
        // Each waits its 5 ms.
        (&format!("{queue}queue = 1"), &["/ p:free"; 4], &[200; 4]),
    ])
    .await;
    let lines = "limit = 500_000\nwindow = \"30d\"\nburst = 2_000\ntiers = { by = \"header:p\",\nfree = 1 }";
    let error = Config::from_toml(&policy(lines)).expect_err("no such burst").to_string();
    assert!(error.starts_with("line 7: tier \"free\": burst 2000 is too large: it must be at most "), "{error}");
}

/// How a request is advertised a policy.
async fn told(file: &str, request: &str) -> String {
    let response = send(&limited(file), request).await;
    response.headers().get("ratelimit-policy").map_or("", |told| told.to_str().expect("it is text")).to_owned()
}

#[tokio::test]
async fn a_header_chooses_the_tier_that_is_advertised_unless_the_file_says_otherwise() {
    let tiers = "limit = 5\ntiers = { by = \"header:X-Plan\", free = 10, \"pro plus\" = 600 }";
    let long = "algorithm = \"long_sliding_log\"\nlimit = 20_000\nwindow = \"1h\"\n\
                tiers = { by = \"header:x-plan\", pro = 1_000_000 }";
    for (lines, header, expected) in [
        (tiers, "", "\"a\";q=5;w=60"),
        (tiers, "x-plan:", "\"a\";q=5;w=60"),
        (tiers, "x-plan:free", "\"a\";q=10;w=60"),
        (tiers, "x-plan:pro+plus", "\"a\";q=600;w=60"),
        (tiers, "x-plan:Free", "\"a\";q=5;w=60"),
        (tiers, "x-plan:by", "\"a\";q=5;w=60"),
        (long, "", "\"a\";q=20000;w=3600"),
        (long, "x-plan:pro", "\"a\";q=1000000;w=3600"),
        ("advertise = true", "", "\"a\";q=5;w=60"),
        ("advertise = false", "", ""),
        ("shadow = false", "", "\"a\";q=5;w=60"),
        ("shadow = true", "", ""),
    ] {
        assert_eq!(told(&policy(lines), &format!("/ {header}")).await, expected, "{lines} {header}");
    }
    let quota = *Config::from_toml(&policy(long)).expect("it is valid").policies()[0].quota();
    assert_eq!(quota, Quota::long_sliding_log(20_000, Duration::from_secs(3_600)));
}

#[tokio::test]
async fn a_dropped_request_gives_back_what_it_took_if_the_file_says_so() {
    for (line, expected) in [("refund_dropped = true", 200), ("refund_dropped = false", 429), ("", 429)] {
        let app = limited(&policy(&format!("limit = 1\n{line}")));
        assert!(app.clone().oneshot(request("/hang")).now_or_never().is_none());
        assert_eq!(send(&app, "/").await.status(), expected, "{line}");
    }
}

/// What the response to one request of a policy by a header's cost is, and what is left of the policy's 5 units.
async fn left_after(fields: &str, header: &str) -> (u16, String) {
    let file = policy(&format!("cost = \"header:X-Cost\"\nwindow = \"1h\"\n{fields}"));
    let response = send(&limited(&file), &format!("/ {header}")).await;
    assert!(!response.headers().contains_key("retry-after"), "{header}: no wait can help");
    let left = response.headers().get("x-ratelimit-remaining").map_or("", |left| left.to_str().expect("ASCII"));
    (response.status().as_u16(), left.to_owned())
}

#[tokio::test]
async fn a_header_says_the_cost_but_it_is_at_least_1_unless_the_file_says_otherwise() {
    for (fields, header, status, left) in [
        ("", "x-cost:5", 200, "0"),
        ("", "x-cost:002", 200, "3"),
        ("", "x-cost:0", 200, "4"),
        ("", "", 200, "4"),
        ("", "x-cost:6", 429, "5"),
        ("", "x-cost:4503599627370497", 429, "5"),
        ("", "x-cost:99999999999999999999999999", 429, "5"),
        ("min_cost = 0", "x-cost:0", 200, "5"),
        ("min_cost = 0", "", 200, "4"),
        ("min_cost = 3", "x-cost:1", 200, "2"),
        ("min_cost = 3", "x-cost:4", 200, "1"),
        ("min_cost = 3", "", 200, "2"),
    ] {
        assert_eq!(left_after(fields, header).await, (status, left.to_owned()), "{fields} {header}");
    }
}

#[tokio::test]
async fn a_cost_that_is_ambiguous_is_treated_as_an_ambiguous_key() {
    let values = ["-5", "5.0", "1e3", "0x3", "", "+", "one", "1,", "1,2", "1 x-cost:2"];
    for cost in values.map(|value| format!("x-cost:{value}")) {
        let (ada, eve) = (format!("/ {cost} x-user:ada"), format!("/ {cost} x-user:eve"));
        let shared = policy("limit = 4\nwindow = \"1h\"\nkey = \"header:x-user\"\ncost = \"header:x-cost\"");
        let app = limited(&shared);
        for (request, left) in [(ada.as_str(), if cost.ends_with('2') { "2" } else { "3" }), ("/ x-user:ada", "3")] {
            let response = send(&app, request).await;
            assert_eq!(response.headers()["x-ratelimit-remaining"], left, "{request}: no client's own units are used");
        }
        let found = statuses(&shared, &[&ada, &eve, &ada, &eve, &ada]).await;
        assert_eq!(found[4], 429, "{cost}: such requests share one counter");
        let denying = format!("{shared}\nmissing_key = \"deny\"");
        assert_eq!(statuses(&denying, &[&ada, "/ x-user:ada"]).await, [400, 200], "{cost}");
    }
}

#[tokio::test]
async fn no_client_leaves_a_ban_or_a_list_by_an_ambiguous_cost() {
    let fields = "limit = 1\nwindow = \"1h\"\nkey = \"peer_ip\"\ncost = \"header:x-cost\"\n";
    let bans = format!("{fields}ban = {{ after = 1, within = \"1h\", duration = \"2h\" }}");
    let lists = format!("{fields}allow = [\"192.0.2.1\"]\ndeny = [\"192.0.2.2\"]");
    let (allowed, denied) = ("/ x-cost:-1 @192.0.2.1", "/ x-cost:-1 @192.0.2.2");
    all_have(&[
        (&bans, &["/", "/", "/ x-cost:-1", "/ x-cost:-1"], &[200, 429, 400, 400]),
        (&lists, &[allowed, allowed, denied], &[200, 200, 403]),
    ])
    .await;
}
