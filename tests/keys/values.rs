//! What keys are made of: the text of a request's key in all its notable spellings, or that it is not certain.

use std::convert::Infallible;
use std::future::ready;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use tollgate::key::{self, Ambiguous, Extracted, KeyExtractor, Lookup};
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer};
use tollgate_test::send;

use super::rig::{by, get, of, text, with};

#[track_caller]
fn row(key: &impl KeyExtractor, header: &'static str, lines: &[impl AsRef<[u8]>], expected: &str) {
    assert_eq!(of(key, with(header, lines)), expected);
}

/// Each of these lines is the only one of its request.
#[track_caller]
fn rows(key: &impl KeyExtractor, header: &'static str, lines: &[impl AsRef<[u8]>], expected: &str) {
    for line in lines {
        let line = line.as_ref();
        assert_eq!(of(key, with(header, &[line])), expected, "{}", line.escape_ascii());
    }
}

fn basic(credentials: impl AsRef<[u8]>) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

/// What stands before a plus sign: a mail system's rule.
fn mailbox(value: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    value.split(|byte| *byte == b'+').next().unwrap_or_default().into()
}

#[test]
fn a_header_is_its_value_without_white_space_around() {
    let user = || key::header("X-User").plain();
    rows(&user(), "x-user", &["ada", " ada", "ada\t", " \t ada\t "], "header x-user:ada");
    row(&user(), "x-user", &["ada", " ada"], "header x-user:ada");
    row(&user(), "x-user", &["ada", "bob"], "ambiguous");
    row(&user(), "x-user", &[""], "header x-user:");
    row(&user(), "x-user", &[b"\xff"], "header x-user:%FF");
    row(&user(), "x-user", &["%FF"], "header x-user:%25FF");
    row(&user().last(), "x-user", &["x", "ada "], "header x-user:ada");
    row(&user().first(), "x-user", &[" ada", "x"], "header x-user:ada");
    rows(&user().ignore_case(), "x-user", &["ada", "ADA", "Ada"], "header x-user:ada");
    row(&user().ignore_case(), "x-user", &["Ada", "aDA"], "header x-user:ada");
    row(&user().normalize(mailbox), "x-user", &["ada+1", " ada+2"], "header x-user:ada");
    row(&user().normalize(mailbox).ignore_case(), "x-user", &["ADA+1"], "header x-user:ada");
}

#[test]
fn a_cookie_is_found_among_others() {
    let id = || key::cookie("id").plain();
    rows(
        &id(),
        "cookie",
        &["id=a", "x=1; id=a; y=2", "x=1;id = a ;y", "id=a; id=a", "id=\"a\"", "id=%61", "%69d=a", "id=%22a%22"],
        "cookie id:a",
    );
    row(&id(), "cookie", &["x=1", "id=a"], "cookie id:a");
    row(&id(), "cookie", &[b"x=\xff; id=a"], "cookie id:a");
    row(&id(), "cookie", &["id=a=b"], "cookie id:a=b");
    rows(&id(), "cookie", &["id=", "x; id"], "cookie id:");
    rows(&id(), "cookie", &["ID=a; idx=b; xid=c", "\";=,"], "missing");
    row(&id(), "x-cookie", &["id=a"], "missing");
    let quoted = of(&id(), with("cookie", &["id=\"\"a\"\""]));
    rows(&id(), "cookie", &["id=%22%22a%22%22", "id=\"%22a%22\"", "id=%22\"a\"%22"], &quoted);
    row(&id().ignore_case(), "cookie", &["id=%41"], "cookie id:a");
    row(&id().normalize(mailbox), "cookie", &["id=a%2B1"], "cookie id:a");
    row(&id(), "cookie", &["=;".repeat(1 << 19)], "missing");
}

#[test]
fn of_several_cookies_the_one_that_the_application_takes_counts_if_all_servers_take_it() {
    let id = || key::cookie("id").plain();
    // One that was made up before or after, and one that only some servers see.
    rows(&id(), "cookie", &["id=x; id=a", "id=a; id=x", "id=x; %69d=a", "id=\"x; id=a"], "ambiguous");
    row(&id(), "cookie", &["id=x", "id=a"], "ambiguous");
    row(&id(), "cookie", &[&b"id=x; y=\xff"[..], b"id=a"], "ambiguous");
    rows(&id().last(), "cookie", &["id=x; id=a", "id=x; id=%61", "id=%FF; id=a"], "cookie id:a");
    row(&id().last(), "cookie", &["id=x", "id=a"], "cookie id:a");
    rows(&id().first(), "cookie", &["id=a; id=x", "id=%61; id=x", "%69d=a; id=a"], "cookie id:a");
}

#[test]
fn a_choice_of_cookies_in_which_servers_differ_is_ambiguous() {
    let (first, last) = (key::cookie("id").first(), key::cookie("id").last());
    rows(&last, "cookie", &["id=a; %69d=x", "id=a; id=%FF", "id=a; id=\"b\\101\""], "ambiguous");
    rows(&first, "cookie", &["%69d=x; id=a", "id=%FF; id=a", "id=\"x; id=a", "id=b\"x; id=a"], "ambiguous");
    // Some leave out a value that begins with a tab.
    row(&first, "cookie", &["id=\tx; id=a"], "ambiguous");
    // One server drops a lone quote, and another the line that is no text.
    row(&last, "cookie", &["id=\"", "id=\u{e9}"], "ambiguous");
    row(&last, "cookie", &[&b"id=a"[..], b"id=1;\xff"], "ambiguous");
    // White space of another script, which some trim around names and values.
    for key in [key::cookie("id"), last] {
        rows(&key, "cookie", &["id=\u{a0}a", "id=a\u{3000}"], "ambiguous");
        row(&key, "cookie", &[&b"id=x"[..], b"\xa0id\x85=a"], "ambiguous");
    }
    rows(&key::cookie("id"), "cookie", &["id\u{85}=a", "\u{a0}id=a"], "ambiguous");
}

#[test]
fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
    let token = Key::hashed("bearer", "abc.def").to_string();
    let lines = ["Bearer abc.def", "bEARER \t abc.def ", "Bearer  abc.def", " bearer\tabc.def"];
    rows(&key::bearer(), "authorization", &lines, &token);
    row(&key::bearer(), "authorization", &["Bearer"], Key::hashed("bearer", "").as_str());
    rows(&key::bearer(), "authorization", &["Basic abc.def", "Bearerabc.def", ""], "missing");
    rows(&key::bearer(), "authorization", &["Digest a=\"b\", c=\"Bearer d\""], "missing");
    rows(
        &key::bearer(),
        "authorization",
        &["Bearer abc,x", "Bearer abc x", "Bearer abc\tx", "Basic x, Bearer abc", "Digest a=\"1\",\tBearer abc ,"],
        "ambiguous",
    );
    let odd = [&b"Bearer \xff"[..], b"Bearer abc\xa0", b"Bearer\xa0abc", b"\xa0Bearer abc"];
    rows(&key::bearer(), "authorization", &odd, "ambiguous");
    row(&key::bearer(), "authorization", &["Bearer x", "Bearer abc"], "ambiguous");
    row(&key::bearer(), "authorization", &["Basic x", "Bearer abc"], "ambiguous");
}

#[test]
fn a_basic_user_is_who_stands_before_the_first_colon() {
    let user = || key::basic_user().plain();
    let lines = ["ada:secret:x", "ada:", "ada"].map(basic);
    rows(&user(), "authorization", &lines, "basic_user:ada");
    rows(&user(), "authorization", &["basic YWRhOng", "Basic  YWRhOng= "], "basic_user:ada");
    row(&user(), "authorization", &[basic(":secret")], "basic_user:");
    rows(&user(), "authorization", &["Bearer YWRhOng=", ""], "missing");
    let odd = ["~~~", "YWRhOng!", "YWRhOng.", "YWRhOng-", "YW RhOng", "YWRhOng=="].map(|text| format!("Basic {text}"));
    rows(&user(), "authorization", &odd, "ambiguous");
    rows(&user(), "authorization", &[basic(b"\xff:secret"), basic(b"ada\xe9:secret")], "ambiguous");
    row(&user(), "authorization", &[b"Basic \xff"], "ambiguous");
    let two = [basic("x:"), basic("ada:")];
    row(&user(), "authorization", &two, "ambiguous");
    row(&user().last(), "authorization", &two, "basic_user:ada");
    row(&user().first(), "authorization", &two, "basic_user:x");
    row(&user().ignore_case(), "authorization", &[basic("ADA:")], "basic_user:ada");
    row(&user().normalize(mailbox).ignore_case(), "authorization", &[basic("ADA+1:")], "basic_user:ada");
    row(&user(), "authorization", &[basic("ADA:")], "basic_user:ADA");
}

#[test]
fn secrets_leave_only_as_hashes() {
    let hash = |kind: &str| Key::hashed(kind, "secret").to_string();
    row(&key::cookie("id"), "cookie", &["id=secret"], &hash("cookie id"));
    row(&key::bearer(), "authorization", &["Bearer secret"], &hash("bearer"));
    row(&key::header("x-api-key"), "x-api-key", &["secret"], &hash("header x-api-key"));
    row(&key::basic_user(), "authorization", &[basic("secret:x")], &hash("basic_user"));
}

#[test]
fn a_megabyte_is_a_hash_of_all_of_it() {
    for long in ["x".repeat(1 << 20), format!("{}y", "x".repeat((1 << 20) - 1))] {
        let hash = |kind: &str| Key::hashed(kind, &long).to_string();
        row(&key::header("x-user").plain(), "x-user", &[&long], &hash("header x-user"));
        row(&key::cookie("id").plain(), "cookie", &[format!("id={long}")], &hash("cookie id"));
        row(&key::bearer(), "authorization", &[format!("Bearer {long}")], &hash("bearer"));
        row(&key::basic_user().plain(), "authorization", &[basic(&long)], &hash("basic_user"));
        row(&key::host(), "host", &[&long], &hash("host"));
    }
    for ends in [["a", "b"], ["a", "%C3%A9"]] {
        let [one, other] = ends.map(|end| format!("/{0}?q={0}{end}", "x".repeat(30_000) + end));
        assert_ne!(of(&key::query("q"), get(&one)), of(&key::query("q"), get(&other)));
        assert_ne!(of(&key::path(), get(&one)), of(&key::path(), get(&other)));
    }
}

#[test]
fn a_query_parameter_is_decoded() {
    let q = || key::query("q");
    let row = |key: &dyn KeyExtractor, uri: &str, expected: &str| assert_eq!(of(key, get(uri)), expected, "{uri}");
    for uri in ["/?q=a", "/?x=1&q=a&q=a", "/?%71=%61", "/?q=a&q=%61", "/x?a=b&%71=a"] {
        row(&q(), uri, "query q:a");
    }
    row(&q(), "/?%71=%61+b", "query q:a%20b");
    row(&q(), "/?q", "query q:");
    row(&q(), "/?q=%FF", "query q:%EF%BF%BD");
    row(&q(), "/?q=%zz%", "query q:%25zz%25");
    for uri in ["/?Q=a&qq=b", "/?", "/q=a"] {
        row(&q(), uri, "missing");
    }
    for uri in ["/?q=x&q=a", "/?q=a&q=x", "/?q=a;x=1", "/?x=1;q=a"] {
        row(&q(), uri, "ambiguous");
    }
    row(&q().last(), "/?q=x&q=a", "query q:a");
    row(&q().last(), "/?q&%71=%61", "query q:a");
    row(&q().first(), "/?q=a&q=x", "query q:a");
    row(&q().last(), "/?q=x;y&q=a", "ambiguous");
    row(&q().ignore_case(), "/?q=Ada&q=adA", "query q:ada");
    row(&q().normalize(mailbox), "/?q=a%2B1", "query q:a");
}

#[test]
fn a_host_is_lower_case_and_has_no_port_wherever_it_is_written() {
    let row = |uri: &str, lines: &[&str], expected: &str| {
        let mut request = with("host", lines);
        *request.uri_mut() = uri.parse().expect("a URI");
        assert_eq!(of(&key::host(), request), expected, "{uri} {lines:?}");
    };
    for host in ["API.Example:8080", "api.example.", "api.example:"] {
        row("/", &[host], "host:api.example");
    }
    row("/", &["[2001:DB8:0::1]:80"], "host:[2001:db8::1]");
    row("/", &["a.example", "A.example"], "host:a.example");
    row("https://API.example:443/x", &[], "host:api.example");
    row("https://api.example/", &["API.example.:443"], "host:api.example");
    row("/", &[], "missing");
    row("https://api.example/", &["evil.example"], "ambiguous");
    row("/", &["a.example", "b.example"], "ambiguous");
    for host in ["", ".", ":80", "a b", "a/b", "user@a.example", "a.example:x", "[::1", "127.1", "ac%6De", "a, b:"] {
        row("/", &[host], "ambiguous");
    }
    rows(&key::host(), "host", &[b"a\xff"], "ambiguous");
}

#[test]
fn a_closure_can_go_on_from_the_host_on_every_version_of_http() {
    let tenant = key::from_fn(|parts| {
        let host = key::host_name(parts)?;
        let tenant = host.as_deref().and_then(|host| host.strip_suffix(".example.com"));
        Ok::<_, Ambiguous>(tenant.map(|tenant| Key::new("tenant", tenant)))
    });
    rows(&tenant, "host", &["acme.example.com", "ACME.example.com:443"], "tenant:acme");
    row(&tenant, "host", &["elsewhere"], "missing");
    row(&tenant, "host", &["a.example.com", "b.example.com"], "ambiguous");
    assert_eq!(of(&tenant, get("https://ACME.example.com:443/")), "tenant:acme");
}

#[test]
fn a_path_has_only_those_bytes_encoded_that_have_to_be() {
    for (path, expected) in [
        ("/a%62c", "path:/abc"),
        ("/ada%40example.com", "path:/ada@example.com"),
        ("/caf%c3%a9", "path:/caf%25C3%25A9"),
        ("//abc", "ambiguous"),
        ("/x/../abc", "ambiguous"),
        ("/a%2Fb", "ambiguous"),
        ("/%ff", "ambiguous"),
    ] {
        assert_eq!(of(&key::path(), get(path)), expected, "{path}");
    }
}

#[test]
fn made_up_methods_share_one_key_and_head_has_that_of_get() {
    let rows = [("GET", "GET"), ("HEAD", "GET"), ("PATCH", "PATCH"), ("BREW", "<other>"), ("get", "<other>")];
    for (method, expected) in rows {
        let request = Request::builder().method(method).body(String::new()).expect("a request");
        assert_eq!(of(&key::method(), request), format!("method:{expected}"));
    }
}

#[test]
fn an_extension_is_read_by_a_closure() {
    let by_user = key::extension(|user: &u32| Key::new("user", user.to_string()));
    let mut parts = get("/").into_parts().0;
    assert_eq!(text(&by_user, &parts), "missing");
    parts.extensions.insert(7_u32);
    assert_eq!(text(&by_user, &parts), "user:7");
    assert_eq!(text(&key::extension(|user: &u32| (*user > 7).then_some("big")), &parts), "missing");
}

#[test]
#[allow(clippy::result_large_err, reason = "a response as it is made is what users return")]
fn what_a_closure_returns_is_a_key() {
    let of = |key: &dyn KeyExtractor| of(key, get("http://a/"));
    assert_eq!(of(&|_: &Parts| -7_i32), of(&|_: &Parts| "-7"));
    assert_eq!(of(&|_: &Parts| i64::MIN), format!("key:{}", i64::MIN));
    assert_eq!(of(&|_: &Parts| u64::MAX), format!("key:{}", u64::MAX));
    assert_eq!(of(&|_: &Parts| None::<u64>), "missing");
    assert_eq!(of(&|_: &Parts| Ok::<_, Ambiguous>(Some(7_u64))), "key:7");
    assert_eq!(of(&key::lookup(key::host(), async |_| Ok::<_, Infallible>(7_u64))), "key:7");
    assert_eq!(of(&|_: &Parts| Err::<IpAddr, _>(Ambiguous)), "ambiguous");
    assert_eq!(of(&key::from_fn(|_| Err::<Key, _>(forbidden()))), "rejected with 403");
    assert_eq!(of(&key::from_fn(|_| Err::<Key, _>(Box::new(forbidden())))), "rejected with 403");
    let found = || key::lookup(key::global(), |_| ready(Ok::<_, Infallible>("x")));
    assert_eq!(of(&(key::method(), key::host(), found())), "method+host+key:GET|a|x");
    assert_eq!(of(&(key::method(), key::query("q"), found())), "missing");
}

fn forbidden() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// The address that a layer for authentication or a proxy's protocol has found.
#[derive(Clone)]
struct Client(IpAddr);

fn by_client(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<Client>().map(|client| client.0)
}

#[test]
fn an_address_is_one_client_in_all_its_forms_and_whoever_finds_it() {
    const IPV4: &str = "ip:203.0.113.7";
    for (client, expected) in [
        ("203.0.113.7", IPV4),
        ("::ffff:203.0.113.7", IPV4),
        ("64:ff9b::203.0.113.7", IPV4),
        ("2002:cb00:7107::1", IPV4),
        ("2002:cb00:7107:0200::1", IPV4),
        ("2001:0:4136:e378:8000:63bf:34ff:8ef8", IPV4),
        ("64:ff9b::203.0.113.8", "ip:203.0.113.8"),
        ("2001:db8::ff:203.0.113.7", "ip:2001:db8::/56"),
        ("64:ff9b:1::203.0.113.7", "ip:64:ff9b:1::/56"),
        ("2001:db8:0:1ff::1", "ip:2001:db8:0:100::/56"),
        ("::1", "ip:::/56"),
    ] {
        let mut parts = by(client, get("/")).into_parts().0;
        parts.extensions.insert(Client(client.parse().expect("an address")));
        for found in [text(&by_client, &parts), text(&key::client_ip(), &parts), text(&key::peer_ip(), &parts)] {
            assert_eq!(found, expected, "{client}");
        }
    }
}

#[tokio::test]
async fn what_a_closure_makes_a_key_of_counts_on_the_counter_of_that_key() {
    let store = MemoryStore::new();
    let layer = |policy: Policy| RateLimitLayer::new(store.clone(), policy);
    let (clients, numbers) =
        (|| Policy::new("clients", Quota::per_hour(2)), || Policy::new("numbers", Quota::per_hour(2)));
    let (address, client_ip) = (layer(clients().key(by_client)), layer(clients().key(key::client_ip())));
    let (number, text) = (layer(numbers().key(|_: &Parts| Some(7_u64))), layer(numbers().key(|_: &Parts| "7")));
    for (layer, client, status) in [
        (&address, "2001:db8::1", 200),
        (&client_ip, "2001:db8::1", 200),
        (&address, "2001:db8::ff:2", 429),
        (&client_ip, "2001:db8:0:ff::3", 429),
        (&address, "2001:db8:0:100::1", 200),
        (&number, "::1", 200),
        (&text, "::1", 200),
        (&number, "::1", 429),
        (&text, "::1", 429),
    ] {
        let request = |_| {
            let mut request = by(client, get("/"));
            request.extensions_mut().insert(Client(client.parse().expect("an address")));
            request
        };
        assert_eq!(send(layer, 1, request).await[0].status(), status, "{client}");
    }
}

#[test]
fn a_lookup_may_find_miss_refuse_or_fail() {
    let by_host = key::lookup(key::host(), async |host: Lookup| {
        tokio::task::yield_now().await;
        match host.text() {
            Some("refused") => Ok(Err(Box::new(forbidden()))),
            Some("broken") => Err("the directory is away"),
            Some("nobody") => Ok(Ok(None)),
            host => Ok(Ok(host.map(|host| Key::new("tenant", host)))),
        }
    });
    let found = |uri: &str| tokio_test::block_on(by_host.extract(&get(uri).into_parts().0).wait());
    for _ in 0..2 {
        assert!(matches!(found("http://a/"), Extracted::Key(key) if key.as_str() == "tenant:a"));
        assert!(matches!(found("/"), Extracted::Missing));
        assert!(matches!(found("http://nobody/"), Extracted::Missing));
        assert!(matches!(found("http://refused/"), Extracted::Rejected(response) if response.status() == 403));
        assert!(matches!(found("http://broken/"), Extracted::Failed(error) if error.is_store()));
    }
}
