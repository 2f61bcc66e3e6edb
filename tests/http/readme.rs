//! The sections of the README in pairs: in one layer, each does what it says.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use axum_extra::middleware::option_layer;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use tollgate::key::Ambiguous;
use tollgate::policy::{AccessList, Count, MissingKey};
use tollgate::response::ActualCost;
use tollgate::test_util::ManualClock;
use tollgate::{Ban, Key, OnFailure, Policy, Quota, RateLimitHeaders, RateLimitLayer, key};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};
use tower::ServiceExt;

use crate::support::time;

const MINUTE: Duration = Duration::from_secs(60);

/// The policies by address that count every request, and those by user, with what they admit at once.
const BY_ADDRESS: &[(&str, u64)] = &[("api", 100), ("guesses", 100), ("ip", 300)];
const BY_USER: &[(&str, u64)] = &[("plan", 100), ("user", 200)];

/// A section, by the policies of its code.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Section {
    QuickStart,
    Composite,
    Slots,
    Tiers,
    Cost,
    Login,
    Bytes,
    Bans,
    CustomKeys,
    Lists,
}

use Section::{Bans, Bytes, Composite, Cost, CustomKeys, Lists, Login, QuickStart, Slots, Tiers};

const ALL: [Section; 10] = [QuickStart, Composite, Slots, Tiers, Cost, Login, Bytes, Bans, CustomKeys, Lists];

fn tenant(parts: &Parts) -> Result<Option<Key>, Ambiguous> {
    let host = key::host_name(parts)?;
    Ok(host.as_deref().and_then(|host| host.split_once('.')).map(|(tenant, _)| Key::new("tenant", tenant)))
}

impl Section {
    fn policies(self) -> Vec<Policy> {
        let by_key = || key::header("x-api-key");
        match self {
            QuickStart => vec![Policy::new("api", Quota::per_minute(100)).key(key::client_ip())],
            Composite => vec![
                Policy::new("ip", Quota::per_minute(300)).key(key::client_ip()),
                Policy::new("user", Quota::per_hour(5_000).burst(200)).key(by_key()),
                Policy::new("route", Quota::fixed_window(50, Duration::from_secs(1))).key(key::route()),
            ],
            Slots => vec![Policy::new("at-once", Quota::concurrency(5)).key(by_key())],
            Tiers => vec![
                Policy::new("plan", Quota::per_minute(100))
                    .key(by_key())
                    .tier(|parts| (parts.headers.get("x-plan")? == "pro").then_some(Quota::per_minute(500))),
            ],
            Cost => vec![Policy::new("query", Quota::per_minute(1_000)).key(key::bearer()).cost(10).metered()],
            Login => vec![
                Policy::new("login", Quota::sliding_log(5, 15 * MINUTE))
                    .key(key::client_ip())
                    .methods([Method::POST])
                    .routes(["/login"])
                    .count(Count::failures()),
            ],
            // They are those of a layer of their own.
            Bytes => vec![],
            Bans => vec![
                Policy::new("guesses", Quota::per_minute(100))
                    .key(key::client_ip())
                    .ban_failures(Ban::new(8, 5 * MINUTE, 15 * MINUTE), Count::statuses([StatusCode::UNAUTHORIZED])),
            ],
            CustomKeys => {
                vec![Policy::new("tenant", Quota::per_minute(600)).key(tenant).missing_key(MissingKey::Deny)]
            }
            Lists => vec![
                Policy::new("office", Quota::per_hour(1))
                    .key(key::client_ip())
                    .allow(AccessList::parse(["203.0.113.0/24"]).expect("a network"))
                    .deny(AccessList::parse(["198.51.100.7"]).expect("an address"))
                    .routes(["/office"]),
            ],
        }
    }

    async fn holds(self, app: &App) {
        match self {
            QuickStart => app.admits(BY_ADDRESS, |app| get_of(&Who { address: 1, ..app.fresh() })).await,
            Composite => {
                app.admits(BY_ADDRESS, |app| get_of(&Who { address: 2, ..app.fresh() })).await;
                app.admits(BY_USER, |app| get_of(&Who { user: 2, ..app.fresh() })).await;
            }
            Slots => {
                // Each response holds its slot until its body has ended.
                let mut held = Vec::new();
                for place in 0..6 {
                    let response = app.send(get_of(&Who { user: 3, ..app.fresh() })).await;
                    assert_eq!(response.status() == 200, place < 5, "request {place}");
                    held.push(response);
                }
            }
            Tiers => {
                app.admits(BY_USER, |app| get_of(&Who { user: 4, ..app.fresh() })).await;
                app.admits(&[("plan", 500), ("user", 200)], |app| {
                    let mut request = get_of(&Who { user: 5, ..app.fresh() });
                    request.headers_mut().insert("x-plan", "pro".parse().expect("a value"));
                    request
                })
                .await;
            }
            Cost => {
                let response = app.send(of("/query", Method::POST, &app.fresh())).await;
                let left = response.headers()["ratelimit"].to_str().expect("text").to_owned();
                assert!(left.contains("\"query\";r=963;"), "{left}");
            }
            Login => {
                let who = Who { address: 6, ..app.fresh() };
                for _ in 0..20 {
                    assert_eq!(app.send(login(&who, "right")).await.status(), 200);
                }
                for _ in 0..5 {
                    assert_eq!(app.send(login(&who, "wrong")).await.status(), 401);
                }
                assert_eq!(app.refused_by(login(&who, "right")).await, ["login"]);
                // Another client of the same proxy is not concerned, and neither is another route.
                assert_eq!(app.send(login(&app.fresh(), "right")).await.status(), 200);
                assert_eq!(app.send(get_of(&who)).await.status(), 200);
            }
            Bytes => {
                let who = Who { address: 7, ..app.fresh() };
                let body = |response: Response| async {
                    response.into_body().collect().await.map(|body| body.to_bytes().len())
                };
                for _ in 0..4 {
                    let response = app.send(of("/megabyte", Method::GET, &who)).await;
                    assert_eq!(body(response).await.expect("it is not cut"), 1_000_000);
                }
                assert_eq!(app.refused_by(of("/megabyte", Method::GET, &who)).await, ["downloads"]);
                assert_eq!(app.send(of("/megabyte", Method::GET, &app.fresh())).await.status(), 200);
            }
            Bans => {
                let guesser = |app: &App| Who { address: 8, ..app.fresh() };
                let mut failed = 0;
                while app.send(login(&guesser(app), "wrong")).await.status() == 401 {
                    failed += 1;
                    // Five guesses in 15 minutes are all that a neighbour may admit.
                    app.clock.advance(MINUTE / 2);
                }
                assert!((5..=8).contains(&failed), "{failed}");
                assert_eq!(app.send(login(&app.fresh(), "right")).await.status(), 200, "an innocent client");
            }
            CustomKeys => {
                app.admits(&[("tenant", 600)], |app| get_of(&Who { tenant: 9, ..app.fresh() })).await;
                let mut nobody = get_of(&app.fresh());
                nobody.headers_mut().remove("host");
                assert_eq!(app.send(nobody).await.status(), 403);
            }
            Lists => {
                let from = |address: &str| {
                    let mut request = of("/office", Method::GET, &app.fresh());
                    request.headers_mut().insert("x-forwarded-for", address.parse().expect("a value"));
                    request
                };
                for _ in 0..3 {
                    assert_eq!(app.send(from("203.0.113.5")).await.status(), 200);
                }
                assert_eq!(app.send(from("198.51.100.7")).await.status(), 403);
                assert_eq!(app.send(from("192.0.2.9")).await.status(), 200);
                assert_eq!(app.refused_by(from("192.0.2.9")).await, ["office"]);
            }
        }
    }
}

/// A client, by what the policies know it by.
#[derive(Clone, Copy)]
struct Who {
    address: u32,
    user: u32,
    tenant: u32,
    token: u32,
}

/// A server behind a proxy that it trusts.
struct App {
    clock: ManualClock,
    router: Router,
    policies: Vec<String>,
    next: Cell<u32>,
}

impl App {
    fn new(sections: &[Section], set: Setting) -> Self {
        let clock = ManualClock::new();
        let policies: Vec<Policy> = sections.iter().flat_map(|section| section.policies()).collect();
        let names = policies.iter().map(|policy| policy.name().to_owned()).collect();
        let layer = |policies| {
            let proxies = key::client_ip().trusted_proxies(["10.0.0.0/8"]);
            set(RateLimitLayer::composite(time::memory(&clock)).client(proxies).policies(policies))
        };
        let downloads = Policy::new("downloads", Quota::per_second(1_000_000).burst(4_000_000)).key(key::client_ip());
        let downloads =
            sections.contains(&Bytes).then(|| BandwidthLayer::responses(layer(vec![downloads]), OnLimit::Abort));
        let answer = async |request: Request<Body>| {
            if request.uri().query() == Some("right") { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
        };
        let router = Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/office", get(|| async { "hello" }))
            .route("/megabyte", get(|| async { vec![b'x'; 1_000_000] }))
            .route("/query", post(|| async { (Extension(ActualCost(37)), "rows") }))
            .route("/login", post(answer))
            .layer(option_layer(downloads))
            .layer(layer(policies));
        Self { clock, router, policies: names, next: Cell::new(1_000) }
    }

    /// A client that was never here.
    fn fresh(&self) -> Who {
        let next = self.next.replace(self.next.get() + 1);
        Who { address: next, user: next, tenant: next, token: next }
    }

    /// Sends a request. Where all clients of a route share a limit, it waits for the next second.
    async fn send(&self, request: Request<Body>) -> Response {
        let parts = request.into_parts().0;
        loop {
            let request = Request::from_parts(parts.clone(), Body::empty());
            let Ok(response) = self.router.clone().oneshot(request).await;
            if violated(&response) != ["route"] {
                return response;
            }
            self.clock.advance(Duration::from_secs(1));
        }
    }

    async fn refused_by(&self, request: Request<Body>) -> Vec<String> {
        violated(&self.send(request).await)
    }

    /// Sends requests until one is refused, which must be by those of these policies that have the lowest limit, after as
    /// many requests and what came back meanwhile.
    async fn admits(&self, limits: &[(&'static str, u64)], request: impl Fn(&Self) -> Request<Body>) {
        let mut limits = limits.to_vec();
        limits.retain(|(policy, _)| self.policies.iter().any(|name| name == policy));
        let least = limits.iter().map(|(_, limit)| *limit).min().expect("one of them is in the layer");
        let (begun, mut admitted) = (self.clock.now(), 0);
        let refused = loop {
            let response = self.send(request(self)).await;
            if response.status() != 200 {
                break response;
            }
            admitted += 1;
            assert!(admitted < 3 * least, "none of {limits:?} refuses");
        };
        limits.retain(|(_, limit)| *limit == least);
        let mut violated = violated(&refused);
        violated.sort();
        assert_eq!(violated, limits.iter().map(|(policy, _)| *policy).collect::<Vec<_>>());
        // None of them refills faster than what it holds in a minute.
        let back = least * self.clock.now().saturating_sub(begun).as_secs() / 60;
        assert!((least..=least + back).contains(&admitted), "{admitted} of {limits:?}");
    }
}

/// The policies that refuse a request, by the header in which only they are.
fn violated(response: &Response) -> Vec<String> {
    if response.status() != StatusCode::TOO_MANY_REQUESTS {
        return Vec::new();
    }
    let members = response.headers()["ratelimit"].to_str().expect("text").split(", ");
    members.map(|member| member.split('"').nth(1).expect("a name").to_owned()).collect()
}

fn of(path: &str, method: Method, who: &Who) -> Request<Body> {
    let [_, b, c, d] = who.address.to_be_bytes();
    let request = Request::builder().uri(path).method(method);
    let request = request.header("host", format!("tenant{}.example.com", who.tenant));
    let request = request.header("x-forwarded-for", format!("100.{b}.{c}.{d}"));
    let request = request.header("x-api-key", format!("user{}", who.user));
    let request = request.header("authorization", format!("Bearer token{}", who.token));
    let request = request.extension(ConnectInfo(SocketAddr::from(([10, 0, 0, 1], 4_711))));
    request.body(Body::empty()).expect("a request")
}

fn get_of(who: &Who) -> Request<Body> {
    of("/", Method::GET, who)
}

fn login(who: &Who, password: &str) -> Request<Body> {
    of(&format!("/login?{password}"), Method::POST, who)
}

/// What a section sets on a layer.
type Setting = fn(RateLimitLayer) -> RateLimitLayer;

const SETTINGS: [Setting; 6] = [
    |layer| layer,
    RateLimitLayer::expose_decisions,
    RateLimitLayer::without_handle,
    RateLimitLayer::log_denials,
    |layer| layer.on_failure(OnFailure::Deny).timeout(Duration::from_millis(50)),
    |layer| layer.headers(RateLimitHeaders::ietf()),
];

#[tokio::test]
async fn every_pair_of_sections_in_one_layer_does_what_both_say() {
    for (place, first) in ALL.into_iter().enumerate() {
        for second in &ALL[place + 1..] {
            for (sections, section) in [([first, *second], first), ([*second, first], *second)] {
                eprintln!("{section:?} of {sections:?}");
                section.holds(&App::new(&sections, |layer| layer)).await;
            }
        }
    }
}

#[tokio::test]
async fn every_section_does_what_it_says_with_each_setting_of_the_layer() {
    for section in ALL {
        for (place, set) in SETTINGS.into_iter().enumerate() {
            eprintln!("{section:?} with setting {place}");
            section.holds(&App::new(&[section], set)).await;
        }
    }
}

#[test]
fn no_page_publishes_a_row_that_was_measured_while_the_machine_was_busy() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");
    for entry in std::fs::read_dir(docs).expect("the pages") {
        let path = entry.expect("a page").path();
        let text = std::fs::read(&path).expect("its text");
        let row =
            String::from_utf8_lossy(&text).lines().find(|line| line.contains("times not judged")).map(str::to_owned);
        assert_eq!(row, None, "{}", path.display());
    }
}
