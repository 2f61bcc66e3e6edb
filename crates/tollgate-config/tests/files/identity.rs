//! Who is counted, as a file says it.

use super::policy;
use super::served::statuses;

/// Of three requests the first two are one to the key, and the last one is another.
#[tokio::test]
async fn every_key_of_a_file_tells_requests_apart() {
    for (key, requests) in [
        ("\"client_ip\"", ["/a @10.0.0.1", "/b @10.0.0.1", "/a @10.0.0.2"]),
        ("\"peer_ip\"", ["/a @10.0.0.1", "/b @10.0.0.1", "/a @10.0.0.2"]),
        ("\"route\"", ["/users/1", "/users/2", "/login"]),
        ("\"path\"", ["/a?x=1", "/a?x=2", "/b"]),
        ("\"method\"", ["GET /a", "GET /b", "POST /a"]),
        ("\"host\"", ["/ host:a.example", "/ host:A.example", "/ host:b.example"]),
        ("\"header:X-Key\"", ["/ x-key:1", "/b x-key:1", "/ x-key:2"]),
        ("\"cookie:s\"", ["/ cookie:s=1", "/ cookie:t=2;s=1", "/ cookie:s=2"]),
        ("\"bearer\"", ["/ authorization:Bearer+a", "/b authorization:bearer+a", "/ authorization:Bearer+b"]),
        // a:1, a:2 and b:1
        ("\"basic_user\"", ["/ authorization:Basic+YTox", "/ authorization:Basic+YToy", "/ authorization:Basic+Yjox"]),
        ("\"query:q\"", ["/?q=1", "/b?x=2&q=1", "/?q=2"]),
        ("\"path_param:id\"", ["/users/1", "/users/1?x", "/users/2"]),
        ("[\"method\", \"query:q\"]", ["/?q=1", "/b?q=1", "POST /?q=1"]),
        ("[\"header:a\", \"header:b\"]", ["/ a:1 b:1", "/z a:1 b:1", "/ a:1 b:2"]),
        // Without one of them there is no key.
        ("[\"header:a\", \"path\"]", ["/ a:1", "/ a:1", "/"]),
    ] {
        let file = policy(&format!("limit = 1\nkey = {key}"));
        assert_eq!(statuses(&file, &requests).await, [200, 429, 200], "{key}");
    }
}

#[tokio::test]
async fn without_a_key_all_requests_are_one() {
    for file in [policy("limit = 1"), policy("limit = 1\nkey = \"global\"")] {
        assert_eq!(statuses(&file, &["/a @10.0.0.1", "POST /b @10.0.0.2"]).await, [200, 429]);
    }
}

#[tokio::test]
async fn trusted_proxies_say_who_the_client_is() {
    let rows: &[(&str, &str, [&str; 2], &str)] = &[
        ("trusted_proxies = [\"10.0.0.0/8\"]", "x-forwarded-for", ["6.6.6.6,1.1.1.1", "1.1.1.1,10.9.9.9"], "2.2.2.2"),
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
async fn clients_are_allowed_and_denied_by_address_or_by_a_part_of_their_key_also_behind_proxies() {
    let lists = "allow = [\"10.0.0.0/8\", \"friend\"]\ndeny = [\"10.6.6.6\", \"foe\"]\n";
    for (key, request, expected) in [
        ("\"header:k\"", "/ k:a @203.0.113.1", [200, 429]),
        ("\"header:k\"", "/ k:b @10.0.0.1", [200, 200]),
        ("\"header:k\"", "/ k:friend @203.0.113.1", [200, 200]),
        ("\"header:k\"", "/ k:foe @203.0.113.1", [403, 403]),
        ("\"header:k\"", "/ k:c @10.6.6.6", [403, 403]),
        ("[\"method\", \"header:k\"]", "/ k:friend @203.0.113.1", [200, 200]),
        ("\"header:k\"", "/ k:a x-forwarded-for:10.1.1.1 @172.16.0.1", [200, 200]),
        ("\"header:k\"", "/ k:a x-forwarded-for:10.6.6.6 @172.16.0.1", [403, 403]),
    ] {
        let file =
            policy(&format!("limit = 1\nkey = {key}\n{lists}")) + "[server]\ntrusted_proxies = [\"172.16.0.0/12\"]";
        assert_eq!(statuses(&file, &[request, request]).await, expected, "{key} {request}");
    }
}
