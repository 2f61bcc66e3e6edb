//! Policies from a file: what is read, and what every mistake is told.

#![cfg(all(feature = "config", feature = "axum"))]

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use proptest::prelude::*;
use tollgate::config::Config;
use tollgate::{Algorithm, MemoryStore, OnFailure, RateLimitLayer, ResponseBody};
use tower::util::BoxCloneService;
use tower::{ServiceBuilder, ServiceExt, service_fn};

const GOOD: &str = r#"
# every field there is
[[policy]]
name = "ip"
key = "peer_ip"
algorithm = "token_bucket"
limit = 300
window = "60s"
burst = 50
cost = 2
missing_key = "deny"
advertise = false

[[policy]]
name = "user.search-2_"
key = ["header:X-Api-Key", "route"]
algorithm = "fixed_window"
limit = 1_000
window = "30d"

[[policy]]
name = "short"
limit = 5
window = "100ms"

[server]
on_failure = "deny"
instances = 3
"#;

#[test]
fn a_good_file_gives_its_policies_in_order() {
    let config = Config::from_toml(GOOD).unwrap();
    let names: Vec<_> = config.policies().iter().map(tollgate::Policy::name).collect();
    assert_eq!(names, ["ip", "user.search-2_", "short"]);
    let quotas: Vec<_> = config.policies().iter().map(tollgate::Policy::quota).collect();
    let shapes = quotas.iter().map(|quota| (quota.algorithm(), quota.limit(), quota.capacity(), quota.window()));
    let expected = [
        (Algorithm::TokenBucket, 300, 50, Duration::from_secs(60)),
        (Algorithm::FixedWindow, 1_000, 1_000, Duration::from_secs(30 * 86_400)),
        (Algorithm::TokenBucket, 5, 5, Duration::from_millis(100)),
    ];
    assert_eq!(shapes.collect::<Vec<_>>(), expected);
    assert_eq!((config.server().on_failure(), config.server().instances().get()), (OnFailure::Deny, 3));
    assert_eq!(config.into_policies().len(), 3);
}

#[test]
fn an_empty_file_has_no_policies_and_the_default_settings() {
    let config = Config::from_toml("").unwrap();
    assert!(config.policies().is_empty());
    assert_eq!((config.server().on_failure(), config.server().instances().get()), (OnFailure::Fallback, 1));
}

#[test]
fn the_file_in_the_readme_is_a_good_one() {
    let blocks = include_str!("../README.md").split("```toml\n").skip(1);
    let files: Vec<_> = blocks.map(|block| block.split("```").next().unwrap()).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(Config::from_toml(files[0]).unwrap().policies().len(), 2);
}

/// A file whose one policy is good but for the lines given; they begin on line 3.
#[track_caller]
fn policy(lines: &str) -> String {
    let mut file = "[[policy]]\n\n".to_owned() + lines + "\n";
    for (field, line) in [("name", "name = \"a\""), ("limit", "limit = 5"), ("window", "window = \"60s\"")] {
        let given = lines.lines().any(|line| line.starts_with(field) || line.starts_with(&format!("# no {field}")));
        if !given {
            file = file + line + "\n";
        }
    }
    file
}

#[track_caller]
fn refused(file: &str, line: usize, fragments: &[&str]) {
    let error = Config::from_toml(file).expect_err(file);
    let text = format!("{error:#}");
    assert!(error.is_invalid(), "{text}");
    assert!(text.starts_with(&format!("line {line}: ")), "{text}\n{file}");
    assert!(!text.contains('\n') && !text.ends_with('.'), "{text:?}");
    for fragment in fragments {
        assert!(text.contains(fragment), "{text} does not say {fragment:?}");
    }
}

#[test]
fn every_mistake_in_a_policy_names_its_line() {
    let table: &[(&str, usize, &[&str])] = &[
        ("colour = \"red\"", 3, &["unknown field `colour`", "`missing_key`"]),
        ("tiers = { free = 1 }", 3, &["unknown field `tiers`"]),
        ("name = \"9lives\"", 3, &["\"9lives\"", "start with a letter"]),
        ("name = \"\"", 3, &["\"\"", "start with a letter"]),
        ("name = 7", 3, &["integer `7`", "string", "name"]),
        ("name = \"a\"\nname = \"b\"", 4, &["duplicate key"]),
        ("# no name", 1, &["no name", "name = "]),
        ("# no limit", 1, &["no limit", "limit = N"]),
        ("# no window", 1, &["no window", "window = \"60s\""]),
        ("limit = 0", 3, &["limit 0", "at least 1"]),
        ("limit = -5", 3, &["`-5`", "a whole number, 0 or more", "limit"]),
        ("limit = 1.5", 3, &["`1.5`", "a whole number"]),
        ("limit = \"5\"", 3, &["\"5\"", "without quotes"]),
        ("limit = 9_223_372_036_854_775_807", 3, &["limit 9223372036854775807 is too large", "at most"]),
        ("limit = 99_999_999_999_999_999_999", 3, &[]),
        ("\nwindow = \"fast\"", 4, &["window \"fast\" is not a duration", "60s", "expected number"]),
        ("window = \"60\"", 3, &["window \"60\" is not a duration", "unit"]),
        ("window = \"\"", 3, &["is not a duration"]),
        ("window = \"-1s\"", 3, &["is not a duration"]),
        ("window = 60", 3, &["integer `60`", "a duration in quotes", "window"]),
        ("window = \"0s\"", 3, &["window 0s", "at least 1us"]),
        ("limit = 1\nwindow = \"1ns\"", 4, &["not a whole number of ticks"]),
        ("window = \"100years\"", 3, &["too long", "69 years"]),
        (
            "algorithm = \"leaky\"",
            3,
            &[
                "algorithm \"leaky\" is unknown",
                "fixed_window, sliding_log, sliding_window, token_bucket, gcra, leaky_bucket",
            ],
        ),
        ("algorithm = \"fixed_window\"\nburst = 5", 4, &["burst 5", "token bucket only"]),
        ("queue = 5", 3, &["queue 5", "leaky bucket only"]),
        (
            "algorithm = \"leaky_bucket\"\nqueue = 9_000_000_000_000",
            4,
            &["queue 9000000000000 is too large", "at most"],
        ),
        ("burst = 0", 3, &["burst 0", "at least 1"]),
        ("burst = 9_000_000_000_000", 3, &["burst 9000000000000 is too large", "at most"]),
        ("key = \"client\"", 3, &["key \"client\" is unknown", "peer_ip, route, path, global, header:NAME"]),
        ("key = \"\"", 3, &["key \"\" is unknown"]),
        ("key = \"header\"", 3, &["header:x-api-key", "\"\""]),
        ("key = \"header:x y\"", 3, &["\"x y\"", "header:x-api-key", "invalid HTTP header name"]),
        ("key = []", 3, &["a list of 0 keys", "1 to 8"]),
        ("key = [\"path\",\"path\",\"path\",\"path\",\"path\",\"path\",\"path\",\"path\",\"path\"]", 3, &["9 keys"]),
        ("key = [\n  \"path\",\n  \"user\",\n]", 5, &["key \"user\" is unknown"]),
        ("key = [\"path\", 3]", 3, &["integer `3`", "string"]),
        ("key = { header = \"a\" }", 3, &["a key in quotes, or a list of keys"]),
        ("cost = -1", 3, &["`-1`", "0 or more"]),
        ("cost = \"header:x-cost\"", 3, &["a whole number"]),
        ("missing_key = \"ignore\"", 3, &["missing_key \"ignore\" is unknown", "skip, deny, share"]),
        ("advertise = \"no\"", 3, &["\"no\"", "boolean"]),
        ("advertise", 3, &[]),
        ("\"a\\nb\" = 1", 3, &["unknown field `a b`"]),
        ("key = \"a\\r\\n\\u001b[31m\"", 3, &["unknown"]),
    ];
    for (lines, line, fragments) in table {
        refused(&policy(lines), *line, fragments);
    }
}

#[test]
fn every_mistake_outside_a_policy_names_its_line() {
    refused("\n[[polices]]\nname = \"a\"", 2, &["unknown field `polices`", "`policy`", "`server`"]);
    refused("[policy]\nname = \"a\"", 1, &["a sequence"]);
    refused("[server]\ntrusted = []", 2, &["unknown field `trusted`", "`on_failure`"]);
    refused("[server]\n\non_failure = \"open\"", 3, &["on_failure \"open\" is unknown", "fallback, allow, deny"]);
    refused("[server]\ninstances = 0", 2, &["instances 0", "1 to 4294967295"]);
    refused("[server]\ninstances = 4294967296", 2, &["instances 4294967296"]);
    refused("a = [1,\n2,\n", 2, &["unclosed array"]);
    refused("name = \"open\n", 1, &[]);
}

#[test]
fn a_name_used_twice_is_told_with_both_lines() {
    let both = GOOD.replace("\"short\"", "\"ip\"");
    refused(&both, 22, &["policy name \"ip\" is taken on line 4"]);
}

#[test]
fn more_policies_than_one_decision_holds_are_refused() {
    let file = |count| (0..count).fold(String::new(), |file, n| file + &policy(&format!("name = \"p{n}\"")));
    assert_eq!(Config::from_toml(&file(128)).unwrap().policies().len(), 128);
    refused(&file(129), 128 * 5 + 1, &["more than 128 policies"]);
}

/// A file in a folder of its own, gone when dropped.
struct TempFile(std::path::PathBuf);

impl TempFile {
    fn new(name: &str, content: &[u8]) -> Self {
        let folder = std::env::temp_dir().join(format!("tollgate-config-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        std::fs::write(folder.join("policies.toml"), content).expect("the temporary folder can be written");
        Self(folder)
    }

    fn read(&self) -> Result<Config, tollgate::Error> {
        Config::from_file(self.0.join("policies.toml"))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_error_in_a_file_starts_with_its_path() {
    assert_eq!(TempFile::new("good", GOOD.as_bytes()).read().unwrap().policies().len(), 3);
    let zero = TempFile::new("zero", policy("limit = 0").as_bytes()).read().unwrap_err().to_string();
    assert!(zero.contains("policies.toml line 3: limit 0 admits nothing"), "{zero}");
    let bytes = TempFile::new("bytes", b"[server]\n# \xff\n").read().unwrap_err().to_string();
    assert!(bytes.contains("policies.toml line 2: the file is not UTF-8"), "{bytes}");
    let gone = format!("{:#}", Config::from_file("/nowhere/policies.toml").unwrap_err());
    assert!(gone.contains("cannot read the config file /nowhere/policies.toml"), "{gone}");
    assert!(gone.contains("No such file"), "the cause is told: {gone}");
}

type Limited = BoxCloneService<Request<Body>, Response<ResponseBody<Body>>, Infallible>;

fn limited(file: &str) -> Limited {
    let policies = Config::from_toml(file).expect("the file is good").into_policies();
    let layer = RateLimitLayer::composite(MemoryStore::new()).policies(policies);
    let inner = service_fn(async |_: Request<Body>| Ok(Response::new(Body::empty())));
    BoxCloneService::new(ServiceBuilder::new().layer(layer).service(inner))
}

/// Sends `GET path` with the headers `a` and `b`, where they are not empty.
async fn status(file: &str, requests: &[(&str, &str, &str)]) -> Vec<u16> {
    let service = limited(file);
    let mut statuses = Vec::new();
    for (path, a, b) in requests {
        let mut request = Request::get(*path);
        for (name, value) in [("a", a), ("b", b)].into_iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(name, *value);
        }
        let request = request.body(Body::empty()).expect("the request is one");
        let response = service.clone().oneshot(request).await;
        statuses.push(response.unwrap_or_else(|never| match never {}).status().as_u16());
    }
    statuses
}

const TWICE: [(&str, &str, &str); 3] = [("/x", "", ""), ("/x", "", ""), ("/y", "", "")];

#[tokio::test]
async fn the_key_of_a_file_tells_requests_apart() {
    assert_eq!(status(&policy("limit = 1\nkey = \"path\""), &TWICE).await, [200, 429, 200]);
    assert_eq!(status(&policy("limit = 1\nkey = \"global\""), &TWICE).await, [200, 429, 429]);
    assert_eq!(status(&policy("limit = 1"), &TWICE).await, [200, 429, 429], "the default is global");
    assert_eq!(status(&policy("limit = 1\nkey = \"route\""), &TWICE).await, [200, 429, 429], "unmatched routes share");
    assert_eq!(status(&policy("limit = 1\nkey = \"peer_ip\""), &TWICE).await, [200, 429, 429], "no address: shared");
}

#[tokio::test]
async fn a_list_of_keys_counts_each_combination() {
    let file = policy("limit = 1\nkey = [\"header:a\", \"header:b\", \"path\"]");
    let requests =
        [("/", "1", "1"), ("/", "1", "2"), ("/", "2", "1"), ("/z", "1", "1"), ("/", "1", "1"), ("/", "1", "")];
    assert_eq!(status(&file, &requests).await, [200, 200, 200, 200, 429, 200], "without `b` there is no key");
}

#[tokio::test]
async fn cost_and_missing_key_of_a_file_are_obeyed() {
    assert_eq!(status(&policy("cost = 3"), &TWICE).await, [200, 429, 429]);
    let skip = policy("limit = 1\nkey = \"header:a\"\nmissing_key = \"skip\"");
    assert_eq!(status(&skip, &TWICE).await, [200, 200, 200]);
    let deny = policy("limit = 1\nkey = \"header:a\"\nmissing_key = \"deny\"");
    assert_eq!(status(&deny, &TWICE).await, [403, 403, 403]);
    let share = policy("limit = 1\nkey = \"header:a\"\nmissing_key = \"share\"");
    assert_eq!(status(&share, &TWICE).await, [200, 429, 429]);
}

#[tokio::test]
async fn a_policy_is_advertised_unless_the_file_says_otherwise() {
    for (lines, expected) in [("", true), ("advertise = true", true), ("advertise = false", false)] {
        let request = Request::get("/").body(Body::empty()).unwrap();
        let response = limited(&policy(lines)).oneshot(request).await.unwrap_or_else(|never| match never {});
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers().contains_key("ratelimit-policy"), expected, "{lines}");
    }
}

/// Lines as a careless or hostile hand might write them.
fn line() -> impl Strategy<Value = String> {
    let field =
        "name|key|algorithm|limit|window|burst|queue|cost|missing_key|advertise|on_failure|instances|[a-z\"\\\\]{0,6}";
    let value = prop_oneof![
        "-?[0-9_]{1,22}(\\.[0-9]{1,3})?",
        "\"[0-9]{0,25} ?(ns|us|ms|s|m|h|d|M|y|years|µs)?\"",
        "\"(peer_ip|route|path|global|header:[a-zA-Z -]{0,9}|fixed_window|token_bucket|skip|deny|allow)\"",
        "\\[(\"path\"|\"header:a\"|,|3){0,12}\\]",
        "(true|false|\\{\\}|inf|nan|\"\"|'''|\\PC{0,12})",
    ];
    prop_oneof![
        8 => (field, value).prop_map(|(field, value)| format!("{field} = {value}")),
        2 => "(\\[\\[policy\\]\\]|\\[server\\]|\\[policy\\]|\\[\\[|#.{0,9})",
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn no_likely_file_makes_it_panic(lines in prop::collection::vec(line(), 0..12)) {
        check(&lines.join("\n"))?;
        check(&format!("[[policy]]\n{}", lines.join("\n")))?;
    }

    #[test]
    fn no_cut_or_changed_file_makes_it_panic(from in 0..GOOD.len(), to in 0..GOOD.len(), put in ".{0,3}") {
        let (from, to) = (from.min(to), from.max(to));
        check(&format!("{}{put}{}", &GOOD[..from], &GOOD[to..]))?;
    }
}

fn check(text: &str) -> Result<(), TestCaseError> {
    if let Err(error) = Config::from_toml(text) {
        let told = format!("{error:#}");
        prop_assert!(error.is_invalid());
        prop_assert!(told.starts_with("line "), "{told}");
        prop_assert!(!told.chars().any(char::is_control), "{told:?}");
    }
    Ok(())
}
