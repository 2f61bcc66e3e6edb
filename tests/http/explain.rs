//! `LiveLayer::explain`: what applies to a request and why, without counting it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
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
use tollgate::store::{Check, Mode};
use tollgate::{Ban, Error, Key, MemoryStore, OnFailure, Policy, Quota, RateLimitLayer, Rule};
use tollgate_test::{Recorded, RecordingStore, send};

use crate::rig;

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
        (&preflight, &["ip", "paths"]),
    ];
    for (request, applying) in requests {
        let explanation = layer.clone().live().explain(&parts(request()));
        assert!(store.take().is_empty(), "it calls no store");
        let names: Vec<&str> = explanation.policies().iter().map(PolicyExplanation::policy).collect();
        assert_eq!(names, ["ip", "user", "paths", "writes", "listed"], "also those that do not apply");
        let explained = explanation.policies().iter().filter(|one| one.applies()).map(|one| {
            let key = one.key().expect("it is counted by a key");
            format!("{} {key} {} {} {}", one.policy(), one.cost(), one.quota(), one.is_shadow())
        });
        let explained: Vec<_> = explained.collect();
        assert!(explained.iter().map(|one| one.split(' ').next().expect("a name")).eq(applying.iter().copied()));

        let sent = send(&layer, 1, |_| request().body(String::new()).expect("a valid request"));
        sent.now_or_never().expect("memory decides at once");
        let checks = store.take().into_iter().find_map(|call| match call {
            Recorded::Decide(checks) => Some(checks),
            _ => None,
        });
        let checked = checks.into_iter().flatten().map(|Check { counter, cost, mode, .. }| {
            let (policy, key, quota) = (counter.policy(), counter.key(), counter.quota());
            format!("{policy} {key} {cost} {quota} {}", mode == Mode::Shadow)
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

#[test]
fn each_reason_for_which_a_policy_does_not_apply_is_said() {
    let any = || Policy::new("any", OWN).key(by_user());
    for (policy, request, why) in [
        (any().methods([Method::POST]), get("/").method(Method::DELETE), "its methods do not include DELETE"),
        (any().routes(["/login"]), get("/login"), "it is for routes, and none has matched where the layer is"),
        (any().when(|_| false), of("ada"), "its closure (when) returned false"),
        (any().missing_key(MissingKey::Deny).preflights_without_key(), preflight(), "a CORS preflight needs no key"),
        (any().allow(list("192.0.2.7")), get("/"), "the client is on its allow list"),
        (any().allow(list("ada")), of("ada"), "the client is on its allow list"),
        (any(), get("/"), "the request has no key, and missing_key is Skip"),
        (any().missing_key(MissingKey::Deny).shadow(), get("/"), "it would deny the request, and is in shadow mode"),
        (any().deny(list("ada")).shadow(), of("ada"), "it would deny the request, and is in shadow mode"),
    ] {
        let explained = alone(policy, request);
        assert_eq!((explained.why(), explained.key(), explained.cost()), (Some(why), None, 0));
        assert!(!explained.applies() && !explained.denies(), "{why}");
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
        (any().missing_key(deny), "denied with 403: the request has no key, and missing_key is Deny"),
        (any().deny(list("192.0.2.7")), "denied with 403: the client is on its deny list"),
        (found(|| Key::new("user", "eve")).deny(list("eve")), "denied with 403: the client is on its deny list"),
        (found(|| Err::<Key, _>(Ambiguous)).missing_key(deny), "denied with 400: the key or the cost is ambiguous"),
        (found(|| Err::<Key, _>(Box::new(Response::new(Bytes::new())))), "denied by the extractor of its key"),
        (found(failed).missing_key(deny), "denied with 503: the key, or the tier, is not known"),
    ] {
        let explained = alone(policy, get("/"));
        assert_eq!(explained.why(), Some(why));
        assert!(explained.applies() && explained.denies() && explained.key().is_none(), "{why}");
    }
    // A failed lookup follows the rule for failures.
    for (rule, why, denies) in [
        (OnFailure::Allow, "its key could not be looked up, and on_failure is Allow", false),
        (OnFailure::Deny, "denied with 503: the key, or the tier, is not known", true),
    ] {
        let explanation = rig::layer([found(failed)]).on_failure(rule).live().explain(&parts(get("/")));
        let explained = &explanation.policies()[0];
        assert_eq!((explained.why(), explained.applies(), explained.denies()), (Some(why), denies, denies));
    }
}

#[test]
fn a_policy_whose_key_was_never_set_says_that_all_requests_share_its_counter() {
    let all = || Policy::new("all", OWN);
    let keyless = "it has no key, so all requests share this counter";
    let without = "requests without a key share this counter";
    for (policy, request, key, why) in [
        (all(), get("/"), "global:", keyless),
        (Policy::from(Rule::new("all", OWN)), get("/"), "global:", keyless),
        (all().key(key::global()), get("/"), "global:", ""),
        (all().key(by_user()).missing_key(MissingKey::Share), get("/"), "anonymous:", without),
        (all().key(key::client_ip()), Request::get("/"), "anonymous:", without),
        (found(|| Err::<Key, _>(Ambiguous)), get("/"), "ambiguous:", "the key or the cost is ambiguous: such"),
        (found(failed), get("/"), "unknown:", "the key could not be looked up: such"),
    ] {
        let explained = alone(policy, request);
        let said = explained.why().map(|text| text.starts_with(why));
        assert_eq!((explained.key().map(Key::as_str), said), (Some(key), (!why.is_empty()).then_some(true)), "{why}");
        assert!(explained.applies() && !explained.denies() && explained.cost() == 1, "{why}");
    }
    let global = rig::layer([]).global(OWN).live().explain(&parts(get("/")));
    assert_eq!(global.policies()[0].why(), None, "one counter for all is meant");
    #[cfg(feature = "config")]
    for (key, why) in [("", Some(keyless)), ("key = \"global\"", None)] {
        let file = format!("[[policy]]\nname = \"all\"\nlimit = 60\nwindow = \"60s\"\n{key}");
        let policies = tollgate_config::Config::from_toml(&file).expect("it is valid").into_policies();
        assert_eq!(alone(policies[0].clone(), get("/")).why(), why);
    }
}

#[test]
fn the_route_that_matched_is_named() {
    let login = || Policy::new("login", OWN).key(key::global());
    let routed = |route| login().routes([route]);
    for (policy, expected) in [
        (routed("/login"), "its routes do not include /api/login, which matched"),
        (routed("/login").methods([Method::GET]), "its methods do not include POST"),
        (routed("/api/login").when(|_| false), "its closure (when) returned false"),
        (routed("/api/login"), "-"),
    ] {
        let layer = rig::layer([policy]).live();
        let explain = from_fn(move |request: AxumRequest, _: Next| {
            ready(layer.explain(&request.into_parts().0).policies()[0].why().unwrap_or("-").to_owned())
        });
        let api = Router::new().route("/login", post(async || {}));
        let inside = Router::new().nest("/api", api.clone().layer(explain.clone()));
        for app in [inside, Router::new().nest("/api", api).layer(explain)] {
            let response = rig::send(&app, Request::post("/api/login").body(String::new()).expect("a request"));
            assert_eq!(rig::text(response), expected);
        }
    }
}

#[test]
fn nothing_is_looked_up() {
    let panics = |_| -> Ready<Result<Option<Key>, Infallible>> { panic!("it is looked up") };
    let tiers = TierLookup::new(|_| -> Ready<Result<Option<Quota>, Infallible>> { panic!("it is looked up") });
    for policy in [
        Policy::new("account", OWN).key(key::lookup(by_user(), panics)),
        Policy::new("plan", OWN).key(by_user()).tier_lookup(tiers),
    ] {
        let explained = alone(policy, of("ada"));
        assert_eq!(explained.why(), Some("its key, or its quota, is looked up"));
        assert!(explained.applies() && !explained.denies() && explained.key().is_none());
    }
}

#[test]
fn the_table_has_a_line_a_policy_however_long_a_key_is() {
    let kind = "k".repeat(70_000);
    let long = Policy::new("long", OWN).key(key::from_fn(move |_| Some(Key::new(&kind, "v"))));
    let table = rig::layer(policies()).policy(long).live().explain(&parts(get("/"))).to_string();
    let names: Vec<_> = table.lines().map(|line| line.split(' ').next().expect("a name")).collect();
    assert_eq!(names, ["policy", "ip", "user", "paths", "writes", "listed", "long"], "{table}");
    assert!(table.len() > 70_000);
}
