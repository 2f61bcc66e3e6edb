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
async fn a_client_that_says_it_costs_nothing_is_refused_in_its_turn() {
    let file = policy("limit = 2\nwindow = \"1h\"\ncost = \"header:x-cost\"");
    assert_eq!(statuses(&file, &["/ x-cost:0"; 3]).await, [200, 200, 429]);
}

/// Costs that are ambiguous.
const MALFORMED: [&str; 10] = [
    "x-cost:-5",
    "x-cost:5.0",
    "x-cost:1e3",
    "x-cost:0x3",
    "x-cost:",
    "x-cost:+",
    "x-cost:one",
    "x-cost:1,",
    "x-cost:1,2",
    "x-cost:1 x-cost:2",
];

#[tokio::test]
async fn a_cost_that_is_ambiguous_is_treated_as_an_ambiguous_key() {
    for cost in MALFORMED {
        let request = format!("/ {cost}");
        let shared = policy("limit = 4\nwindow = \"1h\"\nkey = \"header:x-user\"\ncost = \"header:x-cost\"");
        let app = limited(&shared);
        let taken = if cost.ends_with('2') { "2" } else { "3" };
        for (user, left) in [("x-user:ada", taken), ("x-user:bob", "")] {
            let response = send(&app, &format!("{request} {user}")).await;
            let found = response.headers()["x-ratelimit-remaining"].to_str().expect("ASCII");
            assert!(found == left || left.is_empty(), "{cost}: {found}");
        }
        let response = send(&app, "/ x-user:ada").await;
        assert_eq!(response.headers()["x-ratelimit-remaining"], "3", "{cost}: no client's own units are used");
        let more = [request.as_str(); 5].map(|request| format!("{request} x-user:eve"));
        let found = statuses(&shared, &more.each_ref().map(String::as_str)).await;
        assert_eq!(found[4], 429, "{cost}: such requests share one counter");
        let denying = format!("{shared}\nmissing_key = \"deny\"");
        assert_eq!(statuses(&denying, &[&format!("{request} x-user:ada"), "/ x-user:ada"]).await, [400, 200], "{cost}");
    }
}

#[tokio::test]
async fn no_client_leaves_a_ban_or_a_list_by_an_ambiguous_cost() {
    let fields = "limit = 1\nwindow = \"1h\"\nkey = \"peer_ip\"\ncost = \"header:x-cost\"";
    let bans = policy(&format!("{fields}\nban = {{ after = 1, within = \"1h\", duration = \"2h\" }}"));
    let requests = ["/", "/", "/ x-cost:-1", "/ x-cost:-1"];
    assert_eq!(statuses(&bans, &requests).await, [200, 429, 400, 400]);
    let lists = policy(&format!("{fields}\nallow = [\"192.0.2.1\"]\ndeny = [\"192.0.2.2\"]"));
    let requests = ["/ x-cost:-1 @192.0.2.1", "/ x-cost:-1 @192.0.2.1", "/ x-cost:-1 @192.0.2.2"];
    assert_eq!(statuses(&lists, &requests).await, [200, 200, 403]);
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
    let quota = *tollgate_config::Config::from_toml(&file).expect("it can be").policies()[0].quota();
    assert_eq!(quota, tollgate::Quota::long_sliding_log(20_000, std::time::Duration::from_secs(3_600)));
}

#[tokio::test]
async fn a_burst_too_large_for_a_tier_names_the_tier() {
    let lines = "limit = 500_000\nwindow = \"30d\"\nburst = 2_000\ntiers = { by = \"header:p\",\nfree = 1 }";
    let error = tollgate_config::Config::from_toml(&policy(lines)).unwrap_err().to_string();
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
