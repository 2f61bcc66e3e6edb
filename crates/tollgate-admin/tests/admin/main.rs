//! Two processes that share overrides, and the router of an admin.

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../../tests/support/server.rs"]
mod server;

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tollgate::policy::AccessList;
use tollgate::{Ban, LiveLayer, MemoryStore, Outcome, Policy, Quota, RateLimitLayer, RedisStore, key};
use tollgate_admin::{Admin, EffectKind, Entry, Fleet, Top};
use tower::{Layer, ServiceExt, service_fn};

use self::server::RedisServer;

const HOUR: Duration = Duration::from_secs(3_600);
/// Within which a change holds in other processes.
const SOON: Duration = Duration::from_millis(1_500);

fn policies() -> [Policy; 2] {
    let user = || key::header("x-user").plain();
    let ban = Ban::new(2, HOUR, HOUR).of_verified_keys();
    [
        Policy::new("plan", Quota::fixed_window(2, HOUR))
            .key(user())
            .deny(AccessList::parse(["eve"]).expect("a value")),
        Policy::new("login", Quota::fixed_window(100, HOUR)).key(user()).ban(ban).routes(["/login"]),
    ]
}

/// A process: its layer and its admin.
struct Process {
    live: LiveLayer,
    admin: Admin,
}

impl Process {
    async fn of(server: &RedisServer) -> Self {
        let store = RedisStore::builder().without_deny_cache().connect(&server.url()).await.expect("it was started");
        let live = RateLimitLayer::composite(store.clone()).policies(policies()).live();
        let admin = Admin::redis(store).layer("api", live.clone());
        admin.start();
        Self { live, admin }
    }

    async fn send(&self, user: &str) -> u16 {
        let inner = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
        let request = Request::builder().header("x-user", user).body(Body::empty()).expect("a request");
        self.live.layer(inner).oneshot(request).await.expect("it never fails").status().as_u16()
    }

    /// Sends requests until one has this status.
    async fn becomes(&self, user: &str, status: u16) {
        let start = Instant::now();
        while self.send(user).await != status {
            assert!(start.elapsed() < SOON, "{user} did not get {status}");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

fn of_ada(effect: EffectKind) -> Entry {
    let mut entry = Entry::new(effect);
    (entry.policy, entry.key) = (Some("plan".to_owned()), Some("ada".to_owned()));
    entry
}

fn for_an_hour(entry: Entry) -> Entry {
    let mut entry = entry;
    entry.for_seconds = Some(3_600);
    entry
}

fn of_plan(effect: EffectKind) -> Entry {
    let mut entry = Entry::new(effect);
    entry.policy = Some("plan".to_owned());
    entry
}

#[tokio::test]
async fn each_override_holds_in_both_processes_within_a_second_and_a_half_and_is_undone() {
    let server = RedisServer::start();
    let (one, other) = (Process::of(&server).await, Process::of(&server).await);
    for _ in 0..2 {
        assert_eq!(one.send("ada").await, 200);
    }
    assert_eq!([one.send("ada").await, other.send("ada").await, other.send("eve").await], [429, 429, 403]);

    // Exempt, and denied instead, by the value that the client sends.
    one.admin.set(for_an_hour(of_ada(EffectKind::Exempt))).await.expect("it is one");
    assert_eq!(one.send("ada").await, 200, "it holds at once where it was set");
    other.becomes("ada", 200).await;
    other.admin.set(for_an_hour(of_ada(EffectKind::Deny))).await.expect("it replaces the other");
    assert_eq!((other.admin.overrides().await.expect("Redis works").len(), other.send("ada").await), (1, 429));
    one.becomes("ada", 429).await;
    assert!(one.admin.remove(of_ada(EffectKind::Exempt)).await.expect("Redis works"), "one of the same kind");

    // Scaled: two of four are taken.
    let mut scaled = for_an_hour(of_ada(EffectKind::Scale));
    scaled.factor = Some(2.0);
    one.admin.set(scaled.clone()).await.expect("it is one");
    other.becomes("ada", 200).await;
    one.admin.remove(scaled).await.expect("Redis works");
    other.becomes("ada", 429).await;

    // Off, with its list; in shadow mode; enforced for no key.
    for effect in [EffectKind::Off, EffectKind::Shadow, EffectKind::Enforce] {
        let mut entry = of_plan(effect);
        entry.share = (effect == EffectKind::Enforce).then_some(0.0);
        other.admin.set(entry.clone()).await.expect("it is one");
        one.becomes("ada", 200).await;
        assert_eq!(one.send("eve").await, 200, "{effect:?}");
        assert!(other.admin.remove(entry).await.expect("Redis works"));
        one.becomes("ada", 429).await;
    }

    // One counter: shown, given back, reset.
    let left = async || {
        let shown = other.admin.show(None, "plan", "ada").await.expect("Redis works");
        shown.outcomes().iter().map(Outcome::remaining).collect::<Vec<_>>()
    };
    assert_eq!(left().await, [0]);
    assert_eq!(one.admin.reset(Some("api"), "plan", "header x-user:ada").await.expect("Redis works"), 1);
    assert_eq!((left().await, other.send("ada").await, left().await), (vec![2], 200, vec![1]));
    one.admin.refund(None, "plan", "ada", 1).await.expect("Redis works");
    assert_eq!(left().await, [2]);
    assert_eq!(one.admin.lift_ban(None, "login", "ada").await.expect("Redis works"), 0);
    let limiter = one.live.limiter().only(["login"]).expect("there is one");
    let ada = one.live.find_policy("login").expect("there is one").key_of("ada").expect("a value");
    for _ in 0..2 {
        limiter.strike(&ada).await.expect("Redis works");
    }
    assert!(other.admin.show(None, "login", "ada").await.expect("Redis works").is_banned());
    assert_eq!(one.admin.lift_ban(None, "login", "ada").await.expect("Redis works"), 1);
    assert!(!other.admin.show(None, "login", "ada").await.expect("Redis works").is_banned());
}

/// A user with what docs/redis.md names, and no more.
#[tokio::test]
async fn the_permissions_in_the_page_suffice_and_keys_but_the_overrides_expire() {
    let page = include_str!("../../../../docs/redis.md");
    let rules = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER limiter on >password ~shop:* "));
    let row = page.lines().find(|line| line.contains("overrides of `tollgate-admin`")).expect("a row");
    let more = row.split('`').nth(3).expect("permissions");
    let server = RedisServer::start();
    let rules = rules.expect("the line is there").split(' ').chain(more.split(' '));
    let all: Vec<&str> = ["ACL", "SETUSER", "limiter", "on", ">password", "~shop:*"].into_iter().chain(rules).collect();
    let (): () = server.ask(&all);
    let url = server.url().replace("redis://", "redis://limiter:password@");
    let store = RedisStore::builder().prefix("shop").connect(&url).await.expect("it was started");
    let live = RateLimitLayer::composite(store.clone()).policies(policies()).live();
    let admin = Admin::redis(store.clone()).layer("api", live.clone());
    admin.start();
    admin.set(for_an_hour(of_ada(EffectKind::Exempt))).await.expect("it may");
    let fleet = Fleet::new(store);
    let start = Instant::now();
    while fleet.policies().await.expect("it may").is_empty() {
        assert!(start.elapsed() < Duration::from_secs(5), "it may publish");
        sleep(Duration::from_millis(20)).await;
    }
    let process = Process { live, admin };
    assert_eq!([process.send("ada").await, process.send("bob").await], [200; 2]);
    fleet.set(for_an_hour(of_ada(EffectKind::Deny))).await.expect("it may");
    assert!(fleet.remove(of_ada(EffectKind::Deny)).await.expect("it may"));
    fleet.reset(None, "plan", "bob").await.expect("it may");
    fleet.set(of_plan(EffectKind::Off)).await.expect("it may");
    for key in server.keys() {
        let ttl: i64 = server.ask(&["PTTL", &key]);
        assert_eq!(ttl > 0, key != "shop:overrides", "{key}: {ttl}");
    }
}

#[tokio::test]
async fn the_last_known_overrides_hold_while_redis_is_away_and_end_by_themselves() {
    let server = RedisServer::start();
    let process = Process::of(&server).await;
    let mut short = of_plan(EffectKind::Off);
    short.for_seconds = Some(3);
    process.admin.set(short).await.expect("it is one");
    process.admin.set(for_an_hour(of_ada(EffectKind::Deny))).await.expect("it is one");
    let set = Instant::now();
    drop(server);
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(process.send("eve").await, 200, "the policy is off");
    assert!(process.admin.overrides().await.is_err());
    sleep(Duration::from_secs(3).saturating_sub(set.elapsed()) + Duration::from_millis(200)).await;
    assert_eq!([process.send("eve").await, process.send("ada").await], [403, 429]);
}

#[tokio::test]
async fn a_file_is_shared_by_processes_of_one_host() {
    let path = std::env::temp_dir().join(format!("tollgate-admin-{}.json", std::process::id()));
    let process = || {
        let live = RateLimitLayer::composite(MemoryStore::new()).policies(policies()).live();
        let admin = Admin::file(&path).layer("api", live.clone());
        admin.start();
        Process { live, admin }
    };
    let (one, other) = (process(), process());
    assert_eq!(one.admin.overrides().await.expect("no file is no override"), []);
    one.admin.set(of_plan(EffectKind::Off)).await.expect("it is one");
    other.becomes("eve", 200).await;
    std::fs::write(&path, "not a list").expect("it can be written");
    assert!(other.admin.overrides().await.is_err());
    sleep(SOON).await;
    assert_eq!(other.send("eve").await, 200, "the last known overrides hold");
    std::fs::remove_file(&path).expect("it is there");
    other.becomes("eve", 403).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_keeps_what_is_set_at_once_and_entries_of_another_version_and_drops_what_has_ended() {
    let path = std::env::temp_dir().join(format!("tollgate-admin-file-{}.json", std::process::id()));
    let live = RateLimitLayer::composite(MemoryStore::new()).policies(policies()).live();
    let admin = Admin::file(&path).layer("api", live.clone());
    let ended = |number: usize| json!({ "policy": "plan", "key": format!("header x-user:{number}"), "effect": "exempt", "until_ms": 1 });
    let other = json!({ "effect": "deny", "until_ms": 99_999_999_999_999_u64, "reason": "of a later version" });
    let all: Vec<Value> = (0..10_000).map(ended).chain([other.clone()]).collect();
    std::fs::write(&path, json!(all).to_string()).expect("it can be written");
    let setting: Vec<_> = (0..20)
        .map(|number| {
            let (admin, mut entry) = (admin.clone(), for_an_hour(of_ada(EffectKind::Exempt)));
            entry.key = Some(format!("u{number}"));
            tokio::spawn(async move { admin.set(entry).await })
        })
        .collect();
    for set in setting {
        set.await.expect("no panic").expect("it is one");
    }
    assert_eq!(admin.overrides().await.expect("a list").len(), 20);
    let written: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("it is there")).expect("a list");
    assert!(written.len() == 21 && written.contains(&other), "{written:?}");
    // One can be removed as it is listed, also if no policy makes its key any more.
    let plan = Policy::new("plan", Quota::fixed_window(2, HOUR)).key(key::header("x-token"));
    live.replace_policies([plan]).expect("it is valid");
    for entry in admin.overrides().await.expect("a list") {
        assert!(admin.remove(entry).await.expect("it can be written"));
    }
    std::fs::remove_file(&path).expect("it is there");
}

#[tokio::test]
async fn an_override_is_for_all_layers_that_have_the_policy_or_for_one() {
    let layer = || RateLimitLayer::composite(MemoryStore::new()).policies(policies()).live();
    let (api, web) = (layer(), layer());
    let hashed =
        RateLimitLayer::new(MemoryStore::new(), Policy::new("plan", Quota::per_hour(2)).key(key::header("x-user")));
    let admin = Admin::local().layer("api", api.clone()).layer("web", web.clone()).layer("hashed", hashed.live());
    let error = admin.set(for_an_hour(of_ada(EffectKind::Deny))).await.expect_err("keys differ").to_string();
    assert!(error.contains("name the layer"), "{error}");
    let mut entry = for_an_hour(of_ada(EffectKind::Deny));
    entry.layer = Some("web".to_owned());
    admin.set(entry).await.expect("it is one");
    let of = |live: &LiveLayer| Process { live: live.clone(), admin: admin.clone() };
    assert_eq!([of(&api).send("ada").await, of(&web).send("ada").await], [200, 429]);
    let admin = Admin::local().layer("api", api.clone()).layer("web", web.clone());
    assert_eq!(web.overrides().list().len(), 1, "they are the other admin's");
    for live in [&api, &web] {
        live.overrides().replace([]);
        assert_eq!(
            [of(live).send("bob").await, of(live).send("bob").await, of(live).send("bob").await],
            [200, 200, 429]
        );
    }
    assert_eq!(admin.reset(None, "plan", "bob").await.expect("memory never fails"), 2);
    assert_eq!([of(&api).send("bob").await, of(&web).send("bob").await], [200, 200]);
}

#[tokio::test]
async fn those_denied_most_are_found_among_thousands_of_keys_and_added_up_over_the_fleet() {
    let server = RedisServer::start();
    let mut processes = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::builder().without_deny_cache().connect(&server.url()).await.expect("it was started");
        let top = Top::new();
        let plan = Policy::new("plan", Quota::fixed_window(5, HOUR)).key(key::header("x-user").plain());
        let live = RateLimitLayer::new(MemoryStore::new(), plan).on_decision(top.observer()).live();
        let admin = Admin::redis(store).layer("api", live.clone()).top(top);
        processes.push(Process { live, admin });
    }
    for process in &processes {
        for number in 0..20_000 {
            // Each sends once; two send again and again.
            process.send(&format!("user-{number}")).await;
            if number % 20 == 0 {
                process.send("eve").await;
            }
            if number % 50 == 0 {
                process.send("mallory").await;
            }
        }
        process.admin.start();
    }
    let [eve, mallory] = [1_000_u64, 400];
    let is_close = |count: u64, exact: u64| count <= exact && count >= exact * 9 / 10;
    let found = processes[0].admin.top_keys();
    let names: Vec<&str> = found.iter().take(2).map(|one| one.key.as_str()).collect();
    assert_eq!(names, ["header x-user:eve", "header x-user:mallory"], "{found:?}");
    assert!(is_close(found[0].requests, eve) && is_close(found[0].denied, eve - 5), "{:?}", found[0]);
    assert!(is_close(found[1].requests, mallory) && is_close(found[1].denied, mallory - 5), "{:?}", found[1]);
    assert!(found.len() <= 40, "{}", found.len());

    let fleet = Fleet::new(RedisStore::connect(&server.url()).await.expect("it was started"));
    let start = Instant::now();
    loop {
        let all = fleet.top().await.expect("Redis works");
        if all.first().is_some_and(|first| is_close(first.denied, 2 * (eve - 5)) && first.key == "header x-user:eve") {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(5), "{all:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_router_answers_whom_its_guard_passes_and_says_what_is_wrong() {
    let live = RateLimitLayer::composite(MemoryStore::new()).policies(policies()).live();
    let router = Admin::local().layer("api", live).router(|parts| parts.headers.contains_key("x-operator"));
    let send = async |method: &str, path: &str, body: Value, is_operator: bool| {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let request = if is_operator { request.header("x-operator", "me") } else { request };
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = router.clone().oneshot(request.body(body).expect("a request")).await.expect("it never fails");
        let status = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice::<Value>(&bytes).unwrap_or_default())
    };
    for (method, path) in [
        ("GET", "/policies"),
        ("GET", "/top"),
        ("GET", "/overrides"),
        ("PUT", "/overrides"),
        ("DELETE", "/overrides"),
        ("GET", "/counters?policy=plan&key=ada"),
        ("POST", "/counters/reset"),
        ("POST", "/counters/refund"),
        ("POST", "/counters/lift-ban"),
        ("GET", "/other"),
    ] {
        assert_eq!(send(method, path, Value::Null, false).await.0, StatusCode::FORBIDDEN, "{method} {path}");
    }
    let (_, policies) = send("GET", "/policies", Value::Null, true).await;
    assert_eq!((&policies[0]["policy"], &policies[0]["layer"]), (&json!("plan"), &json!("api")));
    let entry = json!({ "policy": "plan", "key": "ada", "effect": "scale", "factor": 2.0, "for_seconds": 60 });
    let (status, set) = send("PUT", "/overrides", entry, true).await;
    assert_eq!((status, &set[0]["key"]), (StatusCode::OK, &json!("header x-user:ada")));
    let (_, shown) = send("GET", "/counters?policy=plan&key=ada", Value::Null, true).await;
    assert_eq!((&shown["outcomes"][0]["limit"], &shown["outcomes"][0]["overridden"]), (&json!(4), &json!(true)));
    let (_, reset) = send("POST", "/counters/reset", json!({ "policy": "plan", "key": "ada" }), true).await;
    assert_eq!(reset, json!({ "changed": 0 }));
    for (wrong, what) in [
        (json!({ "policy": "plans", "effect": "off" }), "plans"),
        (json!({ "policy": "plan", "key": "ada", "effect": "exempt" }), "for_seconds"),
        (json!({ "policy": "plan", "effect": "enforce", "share": 1.5 }), "share 1.5"),
        (json!({ "policy": "plan", "effect": "off", "share": 0.5 }), "share"),
        (json!({ "effect": "scale", "for_seconds": 60 }), "factor"),
        (json!({ "layer": "web", "effect": "off" }), "web"),
        (json!({ "policy": "plan", "effect": "off", "for_seconds": 0 }), "for_seconds"),
        (json!({ "policy": "plan", "effect": "off", "until_ms": 1 }), "until_ms"),
        (json!({ "key": "user:ada", "effect": "deny", "for_seconds": 60 }), "user:ada"),
    ] {
        let (status, error) = send("PUT", "/overrides", wrong.clone(), true).await;
        let text = error["error"].as_str().unwrap_or_default();
        assert!(status == StatusCode::BAD_REQUEST && text.contains(what), "{wrong}: {status} {text}");
    }
    let unknown = send("PUT", "/overrides", json!({ "effect": "off", "polcy": "plan" }), true).await;
    assert!(
        unknown.0 == StatusCode::BAD_REQUEST && unknown.1["error"].as_str().is_some_and(|text| text.contains("polcy"))
    );
    assert_eq!(send("GET", "/overrides", Value::Null, true).await.1.as_array().map(Vec::len), Some(1));
}
