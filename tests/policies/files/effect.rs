//! What a policy of a file does.

use futures::FutureExt;
use tower::ServiceExt;

use super::policy;
use super::served::{limited, request, send, statuses};

#[tokio::test]
async fn a_fixed_cost_is_taken() {
    assert_eq!(statuses(&policy("cost = 3"), &["/", "/"]).await, [200, 429]);
    assert_eq!(statuses(&policy("limit = 1\ncost = 0\nmetered = true"), &["/", "/"]).await, [200, 200], "0 only looks");
}

#[tokio::test]
async fn a_header_says_the_cost_or_it_is_1() {
    let file = policy("cost = \"header:X-Cost\"\nwindow = \"1h\"");
    for (header, status, left) in [
        ("x-cost:5", 200, "0"),
        ("x-cost:002", 200, "3"),
        ("x-cost:0", 200, "5"),
        ("", 200, "4"),
        ("x-cost:", 200, "4"),
        ("x-cost:-3", 200, "4"),
        ("x-cost:1.5", 200, "4"),
        ("x-cost:0x3", 200, "4"),
        ("x-cost:6", 429, "5"),
        ("x-cost:99999999999999999999999999", 429, "5"),
    ] {
        let response = send(&limited(&file), &format!("/ {header}")).await;
        let headers = response.headers();
        assert_eq!(
            (response.status().as_u16(), &headers["x-ratelimit-remaining"]),
            (status, &left.parse().unwrap()),
            "{header}"
        );
        assert!(!headers.contains_key("retry-after"), "{header}: no wait can help");
    }
}

#[tokio::test]
async fn only_what_counts_stays_taken() {
    let rows: &[(&str, &str, [u16; 3])] = &[
        ("\"all\"", "200", [200, 429, 429]),
        ("\"failures\"", "200", [200, 200, 200]),
        ("\"failures\"", "404", [404, 429, 429]),
        ("\"failures\"", "503", [503, 429, 429]),
        ("\"successes\"", "302", [302, 429, 429]),
        ("\"successes\"", "401", [401, 401, 401]),
        ("\"served\"", "503", [503, 429, 429]),
        ("[401, 403]", "403", [403, 429, 429]),
        ("[401, 403]", "404", [404, 404, 404]),
    ];
    for (count, status, expected) in rows {
        let request = format!("/ want:{status}");
        let file = policy(&format!("limit = 1\ncount = {count}"));
        assert_eq!(statuses(&file, &[&request; 3].map(String::as_str)).await, *expected, "{count} {status}");
    }
}

#[tokio::test]
async fn only_the_methods_and_routes_given_are_limited() {
    let file = policy("limit = 1\nmethods = [\"POST\", \"PATCH\"]\nroutes = [\"/login\", \"/users/{id}\"]");
    let requests = ["POST /login", "PATCH /users/1", "GET /login", "POST /other", "POST /users/2"];
    assert_eq!(statuses(&file, &requests).await, [200, 429, 200, 200, 429]);
}

#[tokio::test]
async fn preflights_count_if_the_file_says_so() {
    let preflight = "OPTIONS / origin:https://a.example access-control-request-method:POST";
    for (line, expected) in [("", [200, 200]), ("preflights = false", [200, 200]), ("preflights = true", [200, 429])] {
        assert_eq!(statuses(&policy(&format!("limit = 1\n{line}")), &[preflight; 2]).await, expected, "{line}");
    }
}

#[tokio::test]
async fn a_reserve_is_kept_for_critical_requests() {
    let file =
        policy("limit = 5\nwindow = \"1h\"\nreserve = 0.4\ncritical = { header = \"X-Priority\", value = \"high\" }");
    let (low, high) = ("/ x-priority:low", "/ x-priority:high");
    let requests = ["/", low, "/", low, "/ x-priority:HIGH", high, high, high];
    assert_eq!(statuses(&file, &requests).await, [200, 200, 200, 429, 429, 200, 200, 429]);
}

async fn told(file: &str, request: &str) -> String {
    let response = send(&limited(file), request).await;
    response
        .headers()
        .get("ratelimit-policy")
        .map_or_else(String::new, |told| told.to_str().expect("it is text").to_owned())
}

#[tokio::test]
async fn a_header_chooses_the_tier() {
    let file = policy("limit = 5\ntiers = { by = \"header:X-Plan\", free = 10, \"pro plus\" = 600 }");
    for (header, limit) in [
        ("", 5),
        ("x-plan:", 5),
        ("x-plan:free", 10),
        ("x-plan:pro+plus", 600),
        ("x-plan:Free", 5),
        ("x-plan:fre", 5),
        ("x-plan:by", 5),
    ] {
        assert_eq!(told(&file, &format!("/ {header}")).await, format!("\"a\";q={limit};w=60"), "{header}");
    }
}

#[tokio::test]
async fn tiers_keep_algorithm_and_window_and_the_burst_or_queue_given() {
    let free = "tiers = { by = \"header:p\", free = 2 }";
    let requests = ["/ p:free"; 4];
    let without = policy(&format!("limit = 1\nwindow = \"1h\"\n{free}"));
    assert_eq!(statuses(&without, &requests).await, [200, 200, 429, 429], "it holds the tier's limit");
    let with = policy(&format!("limit = 1\nwindow = \"1h\"\nburst = 3\n{free}"));
    assert_eq!(statuses(&with, &requests).await, [200, 200, 200, 429]);
    let windows = policy(&format!("algorithm = \"sliding_log\"\nlimit = 1\nwindow = \"1h\"\n{free}"));
    assert_eq!(statuses(&windows, &requests).await, [200, 200, 429, 429]);
    let queueing =
        format!("algorithm = \"leaky_bucket\"\nlimit = 1\nwindow = \"1s\"\nqueue = 1\n{}", free.replace('2', "200"));
    assert_eq!(statuses(&policy(&queueing), &requests).await, [200; 4], "each waits its 5 ms");
}

#[tokio::test]
async fn a_long_sliding_log_is_had_by_its_name_and_so_are_its_tiers() {
    let lines = "algorithm = \"long_sliding_log\"\nlimit = 20_000\nwindow = \"1h\"\n\
                 tiers = { by = \"header:p\", pro = 1_000_000 }";
    let file = policy(lines);
    assert_eq!(told(&file, "/").await, "\"a\";q=20000;w=3600");
    assert_eq!(told(&file, "/ p:pro").await, "\"a\";q=1000000;w=3600");
    let quota = *tollgate::config::Config::from_toml(&file).expect("it can be").policies()[0].quota();
    assert_eq!(quota, tollgate::Quota::long_sliding_log(20_000, std::time::Duration::from_secs(3_600)));
}

#[tokio::test]
async fn a_burst_too_large_for_a_tier_names_the_tier() {
    let lines = "limit = 500_000\nwindow = \"30d\"\nburst = 2_000\ntiers = { by = \"header:p\",\nfree = 1 }";
    let error = tollgate::config::Config::from_toml(&policy(lines)).unwrap_err().to_string();
    assert!(error.starts_with("line 7: tier \"free\": burst 2000 is too large: give at most "), "{error}");
}

#[tokio::test]
async fn a_shadow_never_refuses_nor_shows() {
    let file = policy("limit = 1\nshadow = true");
    assert_eq!(statuses(&file, &["/", "/", "/"]).await, [200; 3]);
    assert_eq!(told(&file, "/").await, "");
    assert_eq!(told(&policy("limit = 1\nshadow = false"), "/").await, "\"a\";q=1;w=60");
}

#[tokio::test]
async fn a_policy_is_advertised_unless_the_file_says_otherwise() {
    for (line, expected) in [("", true), ("advertise = true", true), ("advertise = false", false)] {
        assert_eq!(!told(&policy(line), "/").await.is_empty(), expected, "{line}");
    }
}

#[tokio::test]
async fn a_metered_policy_takes_the_real_cost() {
    for (line, expected) in [("metered = true", [200, 429]), ("metered = false", [200, 200]), ("", [200, 200])] {
        assert_eq!(statuses(&policy(line), &["/ real:5", "/"]).await, expected, "{line}");
    }
}

#[tokio::test]
async fn a_dropped_request_gives_back_what_it_took_if_the_file_says_so() {
    for (line, expected) in [("refund_dropped = true", 200), ("refund_dropped = false", 429), ("", 429)] {
        let app = limited(&policy(&format!("limit = 1\n{line}")));
        assert!(app.clone().oneshot(request("/hang")).now_or_never().is_none());
        assert_eq!(send(&app, "/").await.status(), expected, "{line}");
    }
}
