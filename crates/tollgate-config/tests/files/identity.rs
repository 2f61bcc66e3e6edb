//! Who is counted, as a file says it.

use super::policy;
use super::served::statuses;

/// Sends two requests that are one to the key, and one that is another.
async fn tells_apart(key: &str, same: [&str; 2], other: &str) {
    let file = policy(&format!("limit = 1\nkey = {key}"));
    assert_eq!(statuses(&file, &[same[0], same[1], other]).await, [200, 429, 200], "{key}");
}

#[tokio::test]
async fn every_key_of_a_file_tells_requests_apart() {
    tells_apart("\"client_ip\"", ["/a @10.0.0.1", "/b @10.0.0.1"], "/a @10.0.0.2").await;
    tells_apart("\"peer_ip\"", ["/a @10.0.0.1", "/b @10.0.0.1"], "/a @10.0.0.2").await;
    tells_apart("\"route\"", ["/users/1", "/users/2"], "/login").await;
    tells_apart("\"path\"", ["/a?x=1", "/a?x=2"], "/b").await;
    tells_apart("\"method\"", ["GET /a", "GET /b"], "POST /a").await;
    tells_apart("\"host\"", ["/ host:a.example", "/ host:A.example"], "/ host:b.example").await;
    tells_apart("\"header:X-Key\"", ["/ x-key:1", "/b x-key:1"], "/ x-key:2").await;
    tells_apart("\"cookie:s\"", ["/ cookie:s=1", "/ cookie:t=2;s=1"], "/ cookie:s=2").await;
    tells_apart("\"bearer\"", ["/ authorization:Bearer+a", "/b authorization:bearer+a"], "/ authorization:Bearer+b")
        .await;
    // ada:1, ada:2 and bob:1
    let basic = |credentials: &str| format!("/ authorization:Basic+{credentials}");
    let (ada, ada_too, bob) = (basic("YWRhOjE="), basic("YWRhOjI="), basic("Ym9iOjE="));
    tells_apart("\"basic_user\"", [&ada, &ada_too], &bob).await;
    tells_apart("\"query:q\"", ["/?q=1", "/b?x=2&q=1"], "/?q=2").await;
    tells_apart("\"path_param:id\"", ["/users/1", "/users/1?x"], "/users/2").await;
    tells_apart("[\"method\", \"query:q\"]", ["/?q=1", "/b?q=1"], "POST /?q=1").await;
}

#[tokio::test]
async fn without_a_key_all_requests_are_one() {
    for file in [policy("limit = 1"), policy("limit = 1\nkey = \"global\"")] {
        assert_eq!(statuses(&file, &["/a @10.0.0.1", "POST /b @10.0.0.2"]).await, [200, 429]);
    }
}

#[tokio::test]
async fn a_list_of_keys_counts_each_combination() {
    let file = policy("limit = 1\nkey = [\"header:a\", \"header:b\", \"path\"]");
    let requests = ["/ a:1 b:1", "/ a:1 b:2", "/ a:2 b:1", "/z a:1 b:1", "/ a:1 b:1", "/ a:1"];
    assert_eq!(statuses(&file, &requests).await, [200, 200, 200, 200, 429, 200], "without `b` there is no key");
}

#[tokio::test]
async fn a_missing_key_is_skipped_denied_or_shared() {
    for (rule, expected) in [("skip", [200, 200]), ("deny", [403, 403]), ("share", [200, 429])] {
        let file = policy(&format!("limit = 1\nkey = \"header:a\"\nmissing_key = \"{rule}\""));
        assert_eq!(statuses(&file, &["/", "/"]).await, expected, "{rule}");
    }
}

#[tokio::test]
async fn trusted_proxies_say_who_the_client_is() {
    let rows: &[(&str, &str, [&str; 2], &str)] = &[
        (
            "trusted_proxies = [\"10.0.0.0/8\", \"::1\"]",
            "x-forwarded-for",
            ["6.6.6.6,1.1.1.1", "7.7.7.7,1.1.1.1,10.9.9.9"],
            "2.2.2.2",
        ),
        ("trusted_hops = 1", "x-forwarded-for", ["6.6.6.6,1.1.1.1", "7.7.7.7,1.1.1.1"], "1.1.1.1,2.2.2.2"),
        ("trusted_hops = 1\nforwarded = \"X-Forwarded-For\"", "x-forwarded-for", ["1.1.1.1", "1.1.1.1"], "2.2.2.2"),
        ("trusted_hops = 1\nforwarded = \"forwarded\"", "forwarded", ["for=1.1.1.1", "for=\"1.1.1.1\""], "for=2.2.2.2"),
        ("trusted_hops = 1\nforwarded = \"CF-Connecting-IP\"", "cf-connecting-ip", ["1.1.1.1", "1.1.1.1"], "2.2.2.2"),
    ];
    for (settings, header, same, other) in rows {
        let file = policy("limit = 1\nkey = \"client_ip\"") + "[server]\n" + settings;
        let requests = [same[0], same[1], other].map(|value| format!("/ {header}:{value} @10.0.0.1"));
        assert_eq!(statuses(&file, &requests.each_ref().map(String::as_str)).await, [200, 429, 200], "{settings}");
    }
    let nobody = policy("limit = 1\nkey = \"client_ip\"") + "[server]\ntrusted_proxies = []";
    let requests = ["/ x-forwarded-for:1.1.1.1 @10.0.0.1", "/ x-forwarded-for:2.2.2.2 @10.0.0.1"];
    assert_eq!(statuses(&nobody, &requests).await, [200, 429]);
}

#[tokio::test]
async fn clients_are_allowed_and_denied_by_address_or_by_key() {
    let lists = "limit = 1\nkey = \"header:k\"\nallow = [\"10.0.0.0/8\", \"friend\"]\ndeny = [\"10.6.6.6\", \"foe\"]";
    let rows: &[(&str, [u16; 2])] = &[
        ("/ k:a @203.0.113.1", [200, 429]),
        ("/ k:b @10.0.0.1", [200, 200]),
        ("/ k:friend @203.0.113.1", [200, 200]),
        ("/ k:foe @203.0.113.1", [403, 403]),
        ("/ k:foe @10.0.0.1", [403, 403]),
        ("/ k:c @10.6.6.6", [403, 403]),
        ("/ k:friend @10.6.6.6", [403, 403]),
    ];
    for (request, expected) in rows {
        assert_eq!(statuses(&policy(lists), &[request, request]).await, *expected, "{request}");
    }
}

#[tokio::test]
async fn clients_are_denied_by_any_part_of_a_joined_key() {
    let lists =
        "limit = 1\nkey = [\"method\", \"header:k\", \"path\"]\nallow = [\"friend\"]\ndeny = [\"foe\", \"/admin\"]";
    for (request, expected) in [
        ("/ k:a", [200, 429]),
        ("/ k:friend", [200, 200]),
        ("/ k:foe", [403, 403]),
        ("/admin k:a", [403, 403]),
        ("/admin k:friend", [403, 403]),
    ] {
        assert_eq!(statuses(&policy(lists), &[request, request]).await, expected, "{request}");
    }
}

#[tokio::test]
async fn lists_of_addresses_see_behind_trusted_proxies_whatever_the_key() {
    for key in ["header:k", "global", "client_ip"] {
        let file = policy(&format!("limit = 1\nkey = \"{key}\"\nallow = [\"1.1.1.0/24\"]\ndeny = [\"6.6.6.6\"]"))
            + "[server]\ntrusted_proxies = [\"10.0.0.0/8\"]";
        for (address, expected) in [("1.1.1.1", [200, 200]), ("6.6.6.6", [403, 403]), ("2.2.2.2", [200, 429])] {
            let request = format!("/ k:a x-forwarded-for:{address} @10.0.0.1");
            assert_eq!(statuses(&file, &[&request, &request]).await, expected, "{key} {address}");
        }
    }
}
