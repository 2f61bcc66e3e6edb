//! `LiveLayer::explain`: what applies to a request and why, without counting it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::middleware::{Next, from_fn};
use axum::routing::post;
use bytes::Bytes;
use http::request::{Builder, Parts};
use http::{Method, Request, Response, StatusCode};
use tollgate::key::{self, Ambiguous, KeyExtractor};
use tollgate::policy::{AccessList, MissingKey, TierLookup};
use tollgate::status::PolicyExplanation;
use tollgate::{Ban, Error, Key, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, Rule};
use tollgate_test::{Recorded, RecordingStore, send};
use tower::ServiceExt;

const OWN: Quota = Quota::per_minute(60);
const PRO: Quota = Quota::per_minute(600);

/// A request from an address.
fn get(path: &str) -> Builder {
    let peer = ConnectInfo(SocketAddr::from(([192, 0, 2, 7], 4_711)));
    Request::get(path).extension(peer)
}

fn parts(request: Builder) -> Parts {
    request.body(String::new()).expect("a valid request").into_parts().0
}

fn preflight() -> Builder {
    get("/")
        .method(Method::OPTIONS)
        .header("origin", "https://a.example")
        .header("access-control-request-method", "GET")
}

fn by_user() -> impl KeyExtractor {
    key::header("x-user")
}

fn list(entry: &str) -> AccessList {
    AccessList::parse([entry]).expect("a valid entry")
}

/// What a layer with one policy makes of a request.
fn alone(policy: Policy, request: Builder) -> PolicyExplanation {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy);
    layer.clone().live().explain(&parts(request)).policies()[0].clone()
}

fn policies() -> [Policy; 5] {
    let tier = |parts: &Parts| (parts.headers.get("x-plan")? == "pro").then_some(PRO);
    let cost = |parts: &Parts| parts.uri.path().len() as u64;
    [
        Policy::new("ip", OWN).key(key::client_ip()),
        Policy::new("user", OWN).key(by_user()).tier(tier).cost_by(cost),
        Policy::new("paths", OWN).key((key::client_ip(), key::path())).cost(3).shadow(),
        Policy::new("writes", OWN).key(key::client_ip()).methods([Method::POST]),
        Policy::new("listed", OWN).key(by_user()).allow(list("eve")),
    ]
}

#[tokio::test]
async fn it_says_what_applies_by_which_key_at_which_cost() {
    let store = RecordingStore::new(MemoryStore::new());
    let layer = RateLimitLayer::composite(store.clone()).policies(policies());
    let requests: [(&dyn Fn() -> Builder, &[&str]); 5] = [
        (&|| get("/"), &["ip", "paths"]),
        (&|| get("/reports").header("x-user", "ada"), &["ip", "user", "paths", "listed"]),
        (&|| get("/a%62c").header("x-user", "ada").header("x-plan", "pro"), &["ip", "user", "paths", "listed"]),
        (&|| get("/").method(Method::POST).header("x-user", "eve"), &["ip", "user", "paths", "writes"]),
        (&preflight, &[]),
    ];
    for (request, applying) in requests {
        let explanation = layer.clone().live().explain(&parts(request()));
        let names: Vec<&str> = explanation.policies().iter().map(PolicyExplanation::policy).collect();
        assert_eq!(names, ["ip", "user", "paths", "writes", "listed"], "also those that do not apply");
        let of = |explained: &PolicyExplanation| {
            let key = explained.key().expect("it is counted by a key").clone();
            (explained.policy().to_owned(), key, explained.cost(), *explained.quota(), explained.is_shadow())
        };
        let explained: Vec<_> = explanation.policies().iter().filter(|one| one.applies()).map(of).collect();
        assert_eq!(explained.iter().map(|one| &*one.0).collect::<Vec<_>>(), applying);

        send(&layer, 1, |_| request().body(String::new()).expect("a valid request")).await;
        let decided = store.take().into_iter().find_map(|call| match call {
            Recorded::Decide(checks) => Some(checks),
            _ => None,
        });
        let checked = decided.into_iter().flatten().map(|check| {
            let is_shadow = check.mode == tollgate::store::Mode::Shadow;
            (
                check.counter.policy().to_string(),
                check.counter.key().clone(),
                check.cost,
                *check.counter.quota(),
                is_shadow,
            )
        });
        assert_eq!(explained, checked.collect::<Vec<_>>());
    }
}

#[test]
fn each_reason_for_a_skip_is_said() {
    let any = || Policy::new("any", OWN).key(by_user());
    let with_user = || get("/").header("x-user", "ada");
    for (policy, request, why) in [
        (any().methods([Method::POST]), get("/").method(Method::DELETE), "its methods do not include DELETE"),
        (any().routes(["/login"]), get("/login"), "it is for routes, and none has matched where the layer is"),
        (any().when(|_| false), with_user(), "its closure (when) returned false"),
        (any(), preflight(), "CORS preflights are not counted"),
        (any().allow(list("192.0.2.7")), get("/"), "the client is on its allow list"),
        (any().allow(list("ada")), with_user(), "the client is on its allow list"),
        (any(), get("/"), "the request has no key, and missing_key is Skip"),
        (any().missing_key(MissingKey::Deny).shadow(), get("/"), "it would refuse the request, and is in shadow mode"),
        (any().deny(list("ada")).shadow(), with_user(), "it would refuse the request, and is in shadow mode"),
    ] {
        let explained = alone(policy, request);
        assert_eq!(explained.why(), Some(why));
        assert!(!explained.applies() && !explained.denies() && explained.key().is_none(), "{why}");
        assert_eq!(explained.cost(), 0, "{why}");
    }
}

/// Where a layer is added to a router with another one nested in it.
#[derive(Clone, Copy, Debug)]
enum Added {
    Outer,
    Nested,
}

/// Why a policy does not apply to a POST of a path.
async fn in_router(policy: Policy, added: Added, path: &str) -> String {
    let layer = RateLimitLayer::new(MemoryStore::new(), policy);
    let explain = from_fn(move |request: Request<Body>, _: Next| {
        let (parts, _) = request.into_parts();
        std::future::ready(layer.clone().live().explain(&parts).policies()[0].why().unwrap_or("-").to_owned())
    });
    let api = Router::new().route("/login", post(async || {}));
    let app: Router = match added {
        Added::Outer => Router::new().nest("/api", api).layer(explain),
        Added::Nested => Router::new().nest("/api", api.layer(explain)),
    };
    let response = app.oneshot(Request::post(path).body(Body::empty()).expect("a request")).await;
    let body = to_bytes(response.expect("it does not fail").into_body(), usize::MAX).await.expect("a body");
    String::from_utf8(body.into()).expect("text")
}

#[tokio::test]
async fn the_route_that_matched_is_named() {
    let login = || Policy::new("login", OWN).key(key::global());
    for added in [Added::Outer, Added::Nested] {
        for (policy, why) in [
            (login().routes(["/login"]), "its routes do not include /api/login, which matched"),
            (login().routes(["/login"]).methods([Method::GET]), "its methods do not include POST"),
            (login().routes(["/api/login"]).when(|_| false), "its closure (when) returned false"),
            (login().routes(["/api/login"]), "-"),
        ] {
            assert_eq!(in_router(policy, added, "/api/login").await, why, "{added:?}");
        }
    }
    let why = in_router(login().routes(["/login"]), Added::Outer, "/login").await;
    assert_eq!(why, "it is for routes, and none has matched where the layer is");
}

/// A policy whose key is what `find` returns.
fn found<R: Into<key::Extracted> + 'static>(find: fn() -> R) -> Policy {
    Policy::new("found", OWN).key(key::from_fn(move |_| find()))
}

fn failed() -> Result<Key, Error> {
    Err(Error::store("the directory is away", std::io::Error::other("gone")))
}

fn rejected() -> Result<Key, Box<Response<Bytes>>> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::UNAUTHORIZED;
    Err(Box::new(response))
}

fn ambiguous() -> Result<Key, Ambiguous> {
    Err(Ambiguous)
}

#[test]
fn each_refusal_is_said() {
    let deny = MissingKey::Deny;
    let any = || Policy::new("any", OWN).key(by_user());
    for (policy, why) in [
        (any().missing_key(deny), "refused with 403: the request has no key, and missing_key is Deny"),
        (any().deny(list("192.0.2.7")), "refused with 403: the client is on its deny list"),
        (found(|| Key::new("user", "eve")).deny(list("eve")), "refused with 403: the client is on its deny list"),
        (found(ambiguous).missing_key(deny), "refused with 400: the key or the cost is ambiguous"),
        (found(rejected), "refused by the extractor of its key"),
        (found(failed).missing_key(deny), "refused with 503: the key, or the tier, is not known"),
    ] {
        let explained = alone(policy, get("/"));
        assert_eq!(explained.why(), Some(why));
        assert!(explained.applies() && explained.denies() && explained.key().is_none(), "{why}");
    }
}

#[test]
fn counters_that_clients_share_are_named() {
    let any = || Policy::new("any", OWN).key(by_user());
    let without = "requests without a key share this counter";
    let ambiguous_ = "the key or the cost is ambiguous: such requests";
    for (policy, request, key, why) in [
        (any().missing_key(MissingKey::Share), get("/"), "anonymous:", without),
        (Policy::new("ip", OWN).key(key::client_ip()), Request::get("/"), "anonymous:", without),
        (found(ambiguous), get("/"), "ambiguous:", ambiguous_),
        (found(failed), get("/"), "unknown:", "the key could not be looked up: such requests share this counter"),
    ] {
        let explained = alone(policy, request);
        assert_eq!(explained.key().map(Key::as_str), Some(key));
        assert!(explained.why().is_some_and(|said| said.starts_with(why)), "{:?}", explained.why());
        assert!(explained.applies() && !explained.denies() && explained.cost() == 1, "{why}");
    }
}

#[test]
fn a_policy_whose_key_was_never_set_says_that_all_requests_share_its_counter() {
    let all = || Policy::new("all", OWN);
    let by_rule = Policy::from(Rule::new("all", OWN));
    for (policy, why) in [
        (all(), Some("it has no key, so all requests share this counter")),
        (by_rule, Some("it has no key, so all requests share this counter")),
        (all().key(key::global()), None),
    ] {
        let explained = alone(policy, get("/"));
        assert_eq!((explained.key().map(Key::as_str), explained.why()), (Some("global:"), why));
        assert!(explained.applies() && !explained.denies());
    }
    let global = RateLimitLayer::composite(MemoryStore::new()).global(OWN).live().explain(&parts(get("/")));
    assert_eq!(global.policies()[0].why(), None, "one counter for all is meant");
}

#[cfg(feature = "config")]
#[test]
fn a_policy_of_a_file_without_a_key_says_so_too() {
    for (key, why) in [("", Some("it has no key, so all requests share this counter")), ("key = \"global\"", None)] {
        let file = format!("[[policy]]\nname = \"all\"\nlimit = 60\nwindow = \"60s\"\n{key}");
        let config = tollgate_config::Config::from_toml(&file).expect("it is valid");
        let layer = config.layer(MemoryStore::new()).expect("the store supports it");
        assert_eq!(layer.clone().live().explain(&parts(get("/"))).policies()[0].why(), why);
    }
}

#[test]
fn a_failed_lookup_is_explained_by_the_rule_for_failures() {
    let explain = |rule| {
        let layer = RateLimitLayer::new(MemoryStore::new(), found(failed)).on_failure(rule);
        layer.clone().live().explain(&parts(get("/"))).policies()[0].clone()
    };
    let (allowed, denied) = (explain(OnFailure::Allow), explain(OnFailure::Deny));
    assert_eq!(allowed.why(), Some("its key could not be looked up, and on_failure is Allow"));
    assert_eq!(denied.why(), Some("refused with 503: the key, or the tier, is not known"));
    assert!(!allowed.applies() && denied.denies());
}

#[test]
fn a_ban_on_the_whole_layer_is_a_look_by_a_policy_that_does_not_apply() {
    let minute = Duration::from_secs(60);
    let ban = Ban::new(3, minute, minute).whole_layer();
    let policy = Policy::new("login", OWN).key(key::client_ip()).methods([Method::POST]).ban(ban);
    let explained = alone(policy, get("/"));
    assert_eq!(explained.why(), Some("looks only for a ban of the key, as it does not apply"));
    assert_eq!((explained.applies(), explained.key().map(Key::as_str)), (false, Some("ip:192.0.2.7")));
}

#[tokio::test]
async fn it_takes_nothing_calls_no_store_and_looks_nothing_up() {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counts = || {
        let lookups = Arc::clone(&lookups);
        move || lookups.fetch_add(1, Ordering::Relaxed)
    };
    let (keys, tiers) = (counts(), counts());
    let by_account = key::lookup(by_user(), move |_| {
        keys();
        async { Ok::<_, Infallible>(Key::new("account", "7")) }
    });
    let tiers = TierLookup::new(move |_| {
        tiers();
        async { Ok::<_, Infallible>(Some(PRO)) }
    });
    let looked_up = [
        Policy::new("account", OWN).key(by_account),
        Policy::new("plan", OWN).key(by_user()).tier_lookup(tiers),
        Policy::new("denying", OWN).key(key::lookup(key::global(), |_| async { Ok::<_, Infallible>(rejected()) })),
    ];
    let store = RecordingStore::new(MemoryStore::new());
    let layer = RateLimitLayer::composite(store.clone()).policies(policies()).policies(looked_up);
    for _ in 0..200 {
        let explanation = layer.clone().live().explain(&parts(get("/").header("x-user", "ada")));
        for waiting in &explanation.policies()[5..] {
            assert_eq!(waiting.why(), Some("its key, or its quota, is looked up"));
            assert!(waiting.applies() && !waiting.denies() && waiting.key().is_none());
        }
        tokio::task::yield_now().await;
    }
    assert!(store.recorded().is_empty(), "{:?}", store.recorded());
    assert_eq!(lookups.load(Ordering::Relaxed), 0);
}

#[test]
fn the_table_has_a_line_a_policy() {
    let table =
        |request| RateLimitLayer::composite(MemoryStore::new()).policies(policies()).live().explain(&parts(request));
    let expected = "\
policy  applies  key                  cost  quota                      why
ip      yes      ip:192.0.2.7         1     60 per 60s (token_bucket)  -
user    no       -                    -     60 per 60s (token_bucket)  the request has no key, and missing_key is Skip
paths   shadow   ip+path:192.0.2.7|/  3     60 per 60s (token_bucket)  -
writes  no       -                    -     60 per 60s (token_bucket)  its methods do not include GET
listed  no       -                    -     60 per 60s (token_bucket)  the request has no key, and missing_key is Skip
";
    assert_eq!(table(get("/")).to_string(), expected);
}

#[test]
fn a_kind_that_is_longer_than_any_column_is_displayed() {
    let kind = "k".repeat(70_000);
    let long = move |_: &Parts| Some(Key::new(&kind, "v"));
    let layer = RateLimitLayer::composite(MemoryStore::new()).policy(Policy::new("long", OWN).key(key::from_fn(long)));
    assert!(layer.clone().live().explain(&parts(get("/"))).to_string().len() > 70_000);
}

#[test]
fn a_layer_without_policies_is_a_header() {
    let explanation = RateLimitLayer::composite(MemoryStore::new()).live().explain(&parts(get("/")));
    assert!(explanation.policies().is_empty());
    assert_eq!(explanation.to_string(), "policy  applies  key  cost  quota  why\n");
}
