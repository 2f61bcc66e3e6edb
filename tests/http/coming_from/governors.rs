//! The crates governor and `tower_governor`.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use fastrand::Rng;
use futures::future::join_all;
use governor::clock::{Clock, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::{Quota as Theirs, RateLimiter};
use http::Request;
use tollgate::overrides::Override;
use tollgate::test_util::ManualClock;
use tollgate::{Key, Limiter, MemoryStore, Policy, Quota, RateLimitHeaders, RateLimitLayer, Rule, key};
use tower_governor::GovernorLayer;
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::{GlobalKeyExtractor, PeerIpKeyExtractor, SmartIpKeyExtractor};
use tracing::Level;

use super::{SECOND, alike, hello, limited, row};
use crate::rig::{layer, line, now, send, with};
use crate::sockets::Server;
use crate::support::log::Log;
use crate::support::slow::seeds;
use crate::support::time::memory;

type Builder = GovernorConfigBuilder<PeerIpKeyExtractor, NoOpMiddleware>;

const HOUR: Duration = Duration::from_secs(3_600);

const fn some(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("it is not 0")
}

#[test]
fn quotas_of_governor_admit_the_same_requests_and_tell_the_same_waits() {
    let day = Theirs::with_period(24 * HOUR).expect("it is not 0");
    let rows = [
        ("Quota::per_second(10)", Theirs::per_second(some(10)), "Quota::per_second(10)", Quota::per_second(10)),
        (
            "Quota::per_second(10).allow_burst(3)",
            Theirs::per_second(some(10)).allow_burst(some(3)),
            "Quota::per_second(10).burst(3)",
            Quota::per_second(10).burst(3),
        ),
        (
            "Quota::per_minute(2).allow_burst(7)",
            Theirs::per_minute(some(2)).allow_burst(some(7)),
            "Quota::per_minute(2).burst(7)",
            Quota::per_minute(2).burst(7),
        ),
        ("Quota::per_hour(100)", Theirs::per_hour(some(100)), "Quota::per_hour(100)", Quota::per_hour(100)),
        ("Quota::with_period(DAY)", day, "Quota::token_bucket(1, DAY)", Quota::token_bucket(1, 24 * HOUR)),
    ];
    for (text, theirs, our_text, ours) in rows {
        row(text, our_text);
        for seed in seeds([20, 400]) {
            same_history(text, theirs, ours, seed);
        }
    }
}

/// A random history of checks of one key by both, on clocks that go on together.
fn same_history(text: &str, theirs: Theirs, ours: Quota, seed: u64) {
    let (their_clock, our_clock) = (FakeRelativeClock::default(), ManualClock::new());
    let governor = RateLimiter::hashmap_with_clock(theirs, their_clock.clone());
    let tollgate = Limiter::new(memory(&our_clock), [Rule::new("api", ours)]);
    let (key, mut random) = (Key::new("user", "ada"), Rng::with_seed(seed));
    let interval = u64::try_from(theirs.replenish_interval().as_micros()).expect("a day at most");
    let tick = if ours.window() > 60 * SECOND { 1_000 } else { 1 };
    let (mut admitted, mut denied) = (0, 0);
    for number in 0..200 {
        let units = random.u32(1..=4);
        let decision = now(tollgate.check_n(&key, units.into()));
        // The wait of a denial; none if there are never as many units.
        let denial = match governor.check_key_n(&"ada", some(units)) {
            Err(_) => Some(None),
            Ok(Err(until)) => Some(Some(until.wait_time_from(their_clock.now()))),
            Ok(Ok(())) => None,
        };
        let ours = (!decision.is_allowed()).then(|| decision.retry_after());
        assert_eq!(ours, denial, "{text}, seed {seed}, check {number} of {units} units");
        if denial.is_none() {
            admitted += 1;
        } else {
            denied += 1;
        }
        // Often to just before or after a unit returns.
        let step = match (random.u8(0..4), denial.flatten()) {
            (0, Some(wait)) => wait,
            (1, Some(wait)) => wait.saturating_sub(Duration::from_micros(tick)),
            (2, _) => Duration::from_micros(tick * random.u64(0..=3 * interval / tick)),
            _ => Duration::ZERO,
        };
        their_clock.advance(step);
        our_clock.advance(step);
    }
    assert!(admitted > 9 && denied > 9, "{text}, seed {seed}: {admitted} admitted, {denied} denied");
}

#[test]
fn governor_rounds_the_time_of_a_unit_down_to_nanoseconds() {
    assert_eq!(Theirs::per_second(some(3)).replenish_interval(), Duration::from_nanos(333_333_333));
}

#[tokio::test]
async fn tower_governor_counts_like_the_token_buckets_of_the_page() {
    let default = Builder::default;
    let bucket = |period: Duration, burst| limited(Quota::token_bucket(1, period).burst(burst));
    row("per_second(2).burst_size(3)", "Quota::token_bucket(1, 2 * SECOND).burst(3)");
    row("per_millisecond(500).burst_size(3)", "Quota::token_bucket(1, 500 * MS).burst(3)");
    row("GovernorConfig::default()", "Quota::token_bucket(1, 500 * MS).burst(8)");
    row("GovernorConfig::secure()", "Quota::token_bucket(1, 4 * SECOND).burst(2)");
    let theirs = |config: &mut Builder| hello().layer(GovernorLayer::new(config.finish().expect("not 0")));
    let secure: GovernorConfig<_, NoOpMiddleware> = GovernorConfig::secure();
    let half = SECOND / 2;
    let rows = [
        (theirs(default().per_second(2).burst_size(3)), bucket(2 * SECOND, 3), [5, 1, 2], [3, 0, 1]),
        (theirs(default().per_millisecond(500).burst_size(3)), bucket(half, 3), [5, 3, 9], [3, 2, 3]),
        (theirs(&mut default()), bucket(half, 8), [10, 3, 9], [8, 2, 3]),
        (hello().layer(GovernorLayer::new(secure)), bucket(4 * SECOND, 2), [3, 1, 1], [2, 0, 0]),
    ];
    join_all(rows.map(async |(theirs, ours, sent, served)| {
        let (theirs, ours) = (Server::start(theirs).await, Server::start(ours).await);
        let batches = [(0, sent[0]), (5, sent[1]), (11, sent[2])];
        assert_eq!(alike([&theirs.uri("/"), &ours.uri("/")], &batches).await, served);
    }))
    .await;
}

/// A request from a peer.
fn from(peer: &str) -> Request<String> {
    let mut request = Request::new(String::new());
    request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().expect("an address"), 4_711)));
    request
}

/// The statuses of the responses to requests one after the other.
fn statuses(app: &Router, requests: impl IntoIterator<Item = Request<String>>) -> Vec<u16> {
    requests.into_iter().map(|request| send(app, request).status().as_u16()).collect()
}

#[test]
fn tower_governor_tells_clients_to_wait_for_no_seconds() {
    let theirs = hello().layer(GovernorLayer::new(Builder::default().burst_size(1).finish().expect("not 0")));
    let ours = limited(Quota::per_second(2).burst(1));
    for (app, wait) in [(theirs, "0"), (ours, "1")] {
        assert_eq!(send(&app, from("10.0.0.1")).status(), 200);
        let denial = send(&app, from("10.0.0.1"));
        assert_eq!((denial.status().as_u16(), line(denial.headers(), "retry-after")), (429, wait));
    }
}

#[test]
fn smart_ip_takes_the_address_that_the_client_wrote() {
    let mut theirs = Builder::default().burst_size(1).key_extractor(SmartIpKeyExtractor);
    let theirs = hello().layer(GovernorLayer::new(theirs.finish().expect("not 0")));
    let client = key::client_ip().trusted_proxies(["10.0.0.1"]);
    let ours = layer([Policy::new("api", Quota::per_second(2).burst(1)).key(client)]);
    let ours = hello().layer(ours);
    // The proxy 10.0.0.1 adds who connected to it.
    let spoofed = |made_up: &str| with(from("10.0.0.1"), "x-forwarded-for", format!("{made_up}, 203.0.113.9"));
    let requests = || ["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(spoofed);
    assert_eq!(statuses(&theirs, requests()), [200, 200, 200]);
    assert_eq!(statuses(&ours, requests()), [200, 429, 429]);
}

#[test]
fn without_an_address_tower_governor_fails_and_here_such_requests_share_a_counter() {
    let unknown = || Request::new(String::new());
    let requests = || [(); 2].map(|()| unknown());
    let theirs = hello().layer(GovernorLayer::new(Builder::default().burst_size(1).finish().expect("not 0")));
    assert_eq!(statuses(&theirs, requests()), [500, 500]);
    assert_eq!(statuses(&limited(Quota::per_hour(1)), requests()), [200, 429]);
    // The address of a header is enough for the one, but a peer that is not known is not trusted by the other.
    let mut smart = Builder::default().burst_size(1).key_extractor(SmartIpKeyExtractor);
    let smart = hello().layer(GovernorLayer::new(smart.finish().expect("not 0")));
    let client = key::client_ip().trusted_proxies(["10.0.0.0/8"]);
    let ours = hello().layer(layer([Policy::new("api", Quota::per_hour(1)).key(client)]));
    let forwarded = || ["192.0.2.1", "192.0.2.2"].map(|client| with(unknown(), "x-forwarded-for", client));
    assert_eq!(statuses(&smart, forwarded()), [200, 200]);
    assert_eq!(statuses(&smart, requests()), [500, 500]);
    assert_eq!(statuses(&ours, forwarded()), [200, 429]);
}

#[test]
fn smart_ip_takes_the_first_address_of_the_first_line() {
    let mut theirs = Builder::default().per_second(60).burst_size(1).key_extractor(SmartIpKeyExtractor);
    let theirs = hello().layer(GovernorLayer::new(theirs.finish().expect("not 0")));
    let lines =
        |first: &str, second: &str| with(with(from("10.0.0.1"), "x-forwarded-for", first), "x-forwarded-for", second);
    let requests = [lines("unknown, 192.0.2.1, 192.0.2.2", "192.0.2.3"), lines("192.0.2.1", "192.0.2.4")];
    assert_eq!(statuses(&theirs, requests), [200, 429]);
    // Without an address in the first line, the others are not read.
    assert_eq!(statuses(&theirs, ["192.0.2.5", "192.0.2.6"].map(|second| lines("unknown", second))), [200, 429]);
}

#[test]
fn the_limit_in_headers_is_that_of_the_window_and_not_the_burst() {
    let theirs = |millis| Builder::default().per_millisecond(millis).burst_size(3).use_headers().finish();
    for (millis, limit) in [(100, "10"), (500, "4")] {
        let theirs = hello().layer(GovernorLayer::new(theirs(millis).expect("not 0")));
        let quota = Quota::token_bucket(1, Duration::from_millis(millis)).burst(3);
        let ours = || layer([Policy::new("api", quota).key(key::client_ip())]);
        let legacy = hello().layer(ours().headers(RateLimitHeaders::legacy()));
        for (app, limit, count) in [(theirs, "3", 2), (hello().layer(ours()), limit, 5), (legacy, limit, 3)] {
            let response = send(&app, from("10.0.0.1"));
            let headers = response.headers();
            assert_eq!((line(headers, "x-ratelimit-limit"), line(headers, "x-ratelimit-remaining")), (limit, "2"));
            assert_eq!(headers.keys().filter(|name| name.as_str().contains("ratelimit")).count(), count);
        }
    }
}

#[test]
fn what_an_inner_layer_of_tower_governor_denies_the_outer_one_has_counted() {
    let one = Builder::default().per_second(60).burst_size(1).finish().expect("not 0");
    let mut all = Builder::default().key_extractor(GlobalKeyExtractor);
    let all = all.per_second(60).burst_size(3).finish().expect("not 0");
    let theirs = hello().layer(GovernorLayer::new(one)).layer(GovernorLayer::new(all));
    let one = Policy::new("one", Quota::token_bucket(1, HOUR)).key(key::client_ip());
    let ours = layer([one, Policy::new("all", Quota::token_bucket(3, HOUR))]);
    let ours = hello().layer(ours);
    let requests = || ["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"].map(from);
    assert_eq!(statuses(&theirs, requests()), [200, 429, 429, 429]);
    assert_eq!(statuses(&ours, requests()), [200, 429, 429, 200]);
}

#[test]
fn a_layer_of_each_router_counts_unknown_paths_and_a_policy_of_routes_does_not() {
    let one = || Builder::default().per_second(60).burst_size(1).key_extractor(GlobalKeyExtractor).finish();
    let theirs = hello().layer(GovernorLayer::new(one().expect("not 0")));
    let all = || Policy::new("all", Quota::per_hour(1));
    let unknown = || {
        [(); 2].map(|()| {
            let mut request = from("10.0.0.1");
            *request.uri_mut() = "/unknown".parse().expect("a path");
            request
        })
    };
    assert_eq!(statuses(&theirs, unknown()), [404, 429]);
    assert_eq!(statuses(&hello().layer(layer([all()])), unknown()), [404, 429]);
    assert_eq!(statuses(&hello().layer(layer([all().routes(["/"])])), unknown()), [404, 404]);
}

#[test]
fn layers_of_tower_governor_count_for_themselves_and_policies_of_one_name_over_one_store_together() {
    let one = || Builder::default().per_second(60).burst_size(1).finish().expect("not 0");
    let theirs = [(); 2].map(|()| hello().layer(GovernorLayer::new(one())));
    let store = MemoryStore::new();
    let limited = |name| {
        let policy = Policy::new(name, Quota::per_hour(1)).key(key::client_ip());
        hello().layer(RateLimitLayer::new(store.clone(), policy))
    };
    let (equal, different) = ([limited("api"), limited("api")], [limited("users"), limited("jobs")]);
    for (apps, second) in [(theirs, 200), (equal, 429), (different, 200)] {
        let sent: Vec<_> = apps.iter().flat_map(|app| statuses(app, [from("10.0.0.1")])).collect();
        assert_eq!(sent, [200, second]);
    }
}

#[test]
fn in_steps_the_new_layer_is_outside_of_the_old_one() {
    let old = |burst| {
        let config = Builder::default().per_second(60).burst_size(burst).use_headers().finish();
        GovernorLayer::new(config.expect("not 0"))
    };
    let new = || layer([Policy::new("api", Quota::token_bucket(1, HOUR)).key(key::client_ip()).shadow()]).live();
    let shadow_denials = |app: &Router| {
        let log = Log::default();
        let _noting = log.note(Level::INFO);
        assert_eq!(statuses(app, [(); 3].map(|()| from("10.0.0.1"))), [200, 429, 429]);
        log.count("shadow_denied")
    };
    assert_eq!(shadow_denials(&hello().layer(new()).layer(old(1))), 0, "it sees no request that is denied");
    assert_eq!(shadow_denials(&hello().layer(old(1)).layer(new())), 2);

    let remaining = |app: &Router| {
        let response = send(app, from("10.0.0.2"));
        assert_eq!(response.status(), 200);
        line(response.headers(), "x-ratelimit-remaining").to_owned()
    };
    let enforce = || Override::enforce_share(1.0).and_then(|share| share.policy("api")).expect("a share");
    for (is_inside, shown) in [(true, "2"), (false, "0")] {
        let live = new();
        live.overrides().set(enforce()).expect("it has the policy");
        let app = if is_inside {
            hello().layer(live.clone()).layer(old(3))
        } else {
            hello().layer(old(3)).layer(live.clone())
        };
        assert_eq!(remaining(&app), shown, "inside: {is_inside}");
        assert_eq!(statuses(&app, [from("10.0.0.2")]), [429]);
        live.overrides().remove(&enforce());
        // In shadow mode it leaves the headers of the old layer alone.
        let shown = if is_inside { "0" } else { "1" };
        assert_eq!(remaining(&app), shown, "inside: {is_inside}");
    }
}
