//! `LiveLayer::explain`: what applies to a request and why, without counting it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request as AxumRequest;
use axum::middleware::{Next, from_fn};
use axum::routing::post;
use bytes::Bytes;
use futures::FutureExt;
use http::request::{Builder, Parts};
use http::{Method, Request, Response};
use tollgate::key::{self, Ambiguous, KeyExtractor};
use tollgate::policy::{AccessList, MissingKey, TierLookup};
use tollgate::status::PolicyExplanation;
use tollgate::store::Mode;
use tollgate::{Ban, Error, Key, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, Rule};
use tollgate_test::{Recorded, RecordingStore, send};

use crate::rig::{self, now};

const OWN: Quota = Quota::per_minute(60);
const PRO: Quota = Quota::per_minute(600);
const MINUTE: Duration = Duration::from_secs(60);

/// A request from an address.
fn get(path: &str) -> Builder {
    Request::get(path).extension(SocketAddr::from(([192, 0, 2, 7], 4_711)))
}

fn of(user: &str) -> Builder {
    get("/").header("x-user", user)
}

fn parts(request: Builder) -> Parts {
    request.body(String::new()).expect("a valid request").into_parts().0
}

fn preflight() -> Builder {
    let preflight = get("/").method(Method::OPTIONS).header("origin", "https://a.example");
    preflight.header("access-control-request-method", "GET")
}

fn by_user() -> impl KeyExtractor {
    key::header("x-user")
}

fn list(entry: &str) -> AccessList {
    AccessList::parse([entry]).expect("a valid entry")
}

/// What a layer with one policy makes of a request.
fn alone(policy: Policy, request: Builder) -> PolicyExplanation {
    rig::layer([policy]).live().explain(&parts(request)).policies()[0].clone()
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

#[test]
fn it_says_what_applies_by_which_key_at_which_cost() {
    let store = RecordingStore::new(MemoryStore::new());
    let layer = RateLimitLayer::composite(store.clone()).policies(policies());
    let requests: [(&dyn Fn() -> Builder, &[&str]); 5] = [
        (&|| get("/"), &["ip", "paths"]),
        (&|| get("/reports").header("x-user", "ada"), &["ip", "user", "paths", "listed"]),
        (&|| get("/a%62c").header("x-user", "ada").header("x-plan", "pro"), &["ip", "user", "paths", "listed"]),
        (&|| of("eve").method(Method::POST), &["ip", "user", "paths", "writes"]),
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

        let sent = send(&layer, 1, |_| request().body(String::new()).expect("a valid request"));
        sent.now_or_never().expect("memory decides at once");
        let decided = store.take().into_iter().find_map(|call| match call {
            Recorded::Decide(checks) => Some(checks),
            _ => None,
        });
        let checked = decided.into_iter().flatten().map(|check| {
            let (counter, is_shadow) = (&check.counter, check.mode == Mode::Shadow);
            (counter.policy().to_string(), counter.key().clone(), check.cost, *counter.quota(), is_shadow)
        });
        assert_eq!(explained, checked.collect::<Vec<_>>());
    }
}

/// A policy whose key is what `find` returns.
fn found<R: Into<key::Extracted> + 'static>(find: fn() -> R) -> Policy {
    Policy::new("found", OWN).key(key::from_fn(move |_| find()))
}

fn failed() -> Result<Key, Error> {
    Err(Error::store("the directory is away", std::io::Error::other("gone")))
}

fn rejected() -> Result<Key, Box<Response<Bytes>>> {
    Err(Box::new(Response::builder().status(401).body(Bytes::new()).expect("a response")))
}

fn ambiguous() -> Result<Key, Ambiguous> {
    Err(Ambiguous)
}

#[test]
fn each_reason_for_which_a_policy_does_not_apply_is_said() {
    let any = || Policy::new("any", OWN).key(by_user());
    for (policy, request, why) in [
        (any().methods([Method::POST]), get("/").method(Method::DELETE), "its methods do not include DELETE"),
        (any().routes(["/login"]), get("/login"), "it is for routes, and none has matched where the layer is"),
        (any().when(|_| false), of("ada"), "its closure (when) returned false"),
        (any(), preflight(), "CORS preflights are not counted"),
        (any().allow(list("192.0.2.7")), get("/"), "the client is on its allow list"),
        (any().allow(list("ada")), of("ada"), "the client is on its allow list"),
        (any(), get("/"), "the request has no key, and missing_key is Skip"),
        (any().missing_key(MissingKey::Deny).shadow(), get("/"), "it would refuse the request, and is in shadow mode"),
        (any().deny(list("ada")).shadow(), of("ada"), "it would refuse the request, and is in shadow mode"),
    ] {
        let explained = alone(policy, request);
        assert_eq!(explained.why(), Some(why));
        assert!(!explained.applies() && !explained.denies() && explained.key().is_none(), "{why}");
        assert_eq!(explained.cost(), 0, "{why}");
    }
    let ban = Ban::new(3, MINUTE, MINUTE).whole_layer();
    let policy = Policy::new("login", OWN).key(key::client_ip()).methods([Method::POST]).ban(ban);
    let explained = alone(policy, get("/"));
    assert_eq!(explained.why(), Some("looks only for a ban of the key, as it does not apply"));
    assert_eq!((explained.applies(), explained.key().map(Key::as_str)), (false, Some("ip:192.0.2.7")));
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
    // A failed lookup follows the rule for failures.
    let explain = |rule| {
        let layer = rig::layer([found(failed)]).on_failure(rule);
        layer.live().explain(&parts(get("/"))).policies()[0].clone()
    };
    let (allowed, denied) = (explain(OnFailure::Allow), explain(OnFailure::Deny));
    assert_eq!(allowed.why(), Some("its key could not be looked up, and on_failure is Allow"));
    assert_eq!(denied.why(), Some("refused with 503: the key, or the tier, is not known"));
    assert!(!allowed.applies() && denied.denies());
}

#[test]
fn a_policy_whose_key_was_never_set_says_that_all_requests_share_its_counter() {
    let all = || Policy::new("all", OWN);
    let keyless = "it has no key, so all requests share this counter";
    let without = "requests without a key share this counter";
    let ambiguous_ = "the key or the cost is ambiguous: such requests";
    let failed_ = "the key could not be looked up: such requests share this counter";
    for (policy, request, key, why) in [
        (all(), get("/"), "global:", keyless),
        (Policy::from(Rule::new("all", OWN)), get("/"), "global:", keyless),
        (all().key(key::global()), get("/"), "global:", ""),
        (all().key(by_user()).missing_key(MissingKey::Share), get("/"), "anonymous:", without),
        (all().key(key::client_ip()), Request::get("/"), "anonymous:", without),
        (found(ambiguous), get("/"), "ambiguous:", ambiguous_),
        (found(failed), get("/"), "unknown:", failed_),
    ] {
        let explained = alone(policy, request);
        assert_eq!(explained.key().map(Key::as_str), Some(key));
        assert!(explained.why().unwrap_or("").starts_with(why), "{:?}", explained.why());
        assert_eq!(explained.why().is_none(), why.is_empty(), "{:?}", explained.why());
        assert!(explained.applies() && !explained.denies() && explained.cost() == 1, "{why}");
    }
    let global = rig::layer([]).global(OWN).live().explain(&parts(get("/")));
    assert_eq!(global.policies()[0].why(), None, "one counter for all is meant");
    #[cfg(feature = "config")]
    for (key, why) in [("", Some(keyless)), ("key = \"global\"", None)] {
        let file = format!("[[policy]]\nname = \"all\"\nlimit = 60\nwindow = \"60s\"\n{key}");
        let config = tollgate_config::Config::from_toml(&file).expect("it is valid");
        let layer = config.layer(MemoryStore::new()).expect("the store supports it");
        assert_eq!(layer.live().explain(&parts(get("/"))).policies()[0].why(), why);
    }
}

#[test]
fn the_route_that_matched_is_named() {
    let login = || Policy::new("login", OWN).key(key::global());
    // Why a policy does not apply to a POST of a path, by a layer around a router with another one nested in it, or in that.
    let why = |policy, is_nested: bool, path: &str| {
        let layer = rig::layer([policy]).live();
        let explain = from_fn(move |request: AxumRequest, _: Next| {
            std::future::ready(layer.explain(&request.into_parts().0).policies()[0].why().unwrap_or("-").to_owned())
        });
        let api = Router::new().route("/login", post(async || {}));
        let app: Router = if is_nested {
            Router::new().nest("/api", api.layer(explain))
        } else {
            Router::new().nest("/api", api).layer(explain)
        };
        let response = rig::send(&app, Request::post(path).body(String::new()).expect("a request"));
        String::from_utf8(now(axum::body::to_bytes(response.into_body(), 1_000)).into()).expect("text")
    };
    for is_nested in [false, true] {
        for (policy, expected) in [
            (login().routes(["/login"]), "its routes do not include /api/login, which matched"),
            (login().routes(["/login"]).methods([Method::GET]), "its methods do not include POST"),
            (login().routes(["/api/login"]).when(|_| false), "its closure (when) returned false"),
            (login().routes(["/api/login"]), "-"),
        ] {
            assert_eq!(why(policy, is_nested, "/api/login"), expected, "{is_nested}");
        }
    }
    let outside = why(login().routes(["/login"]), false, "/login");
    assert_eq!(outside, "it is for routes, and none has matched where the layer is");
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
    let layer = RateLimitLayer::composite(store.clone()).policies(policies()).policies(looked_up).live();
    for _ in 0..200 {
        let explanation = layer.explain(&parts(of("ada")));
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
fn the_table_has_a_line_a_policy_however_long_a_key_is() {
    let table = rig::layer(policies()).live().explain(&parts(get("/"))).to_string();
    let names: Vec<_> = table.lines().map(|line| line.split(' ').next().expect("a name")).collect();
    assert_eq!(names, ["policy", "ip", "user", "paths", "writes", "listed"], "{table}");
    assert_eq!(rig::layer([]).live().explain(&parts(get("/"))).to_string(), "policy  applies  key  cost  quota  why\n");
    let kind = "k".repeat(70_000);
    let long = move |_: &Parts| Some(Key::new(&kind, "v"));
    let explanation = rig::layer([Policy::new("long", OWN).key(key::from_fn(long))]).live().explain(&parts(get("/")));
    assert!(explanation.to_string().len() > 70_000);
}
