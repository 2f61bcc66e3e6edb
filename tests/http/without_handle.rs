//! Layers that pass requests on without a handle: nothing else of them differs.

use std::convert::Infallible;
use std::time::Duration;

use fastrand::Rng;
use http::{HeaderValue, Request, Response};
use tollgate::response::ActualCost;
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Policy, Quota, RateLimitHandle, RateLimitHeaders, RateLimitLayer, key};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt};

use crate::rig::{self, Text};
use crate::support::{slow, time};

const REQUESTS: usize = 1_500;
const SEEDS: [u64; 2] = [3, 12];

type Service = BoxCloneService<Request<String>, Response<()>, Infallible>;

fn policy(random: &mut Rng, number: usize) -> Policy {
    let (limit, window) = (random.u64(3..12), Duration::from_secs(random.u64(1..30)));
    let quotas = [Quota::token_bucket, Quota::fixed_window, Quota::sliding_log, Quota::sliding_window];
    let policy = Policy::new(&format!("policy-{number}"), quotas[random.usize(0..4)](limit, window));
    let policy = if random.bool() { policy.key(key::header("x-user")) } else { policy }.cost(random.u64(1..3));
    match random.u8(0..8) {
        0 => policy.shadow(),
        1 => policy.metered(),
        2 => policy.refund_dropped(),
        3 => policy.unadvertised(),
        _ => policy,
    }
}

fn exposing(layer: RateLimitLayer, exposes: bool) -> RateLimitLayer {
    if exposes { layer.expose_decisions() } else { layer }
}

/// Two services that differ in nothing but whether the layer around them has a handle. One inside admits everything.
fn services(random: &mut Rng, clock: &ManualClock) -> [Service; 2] {
    let policies: Vec<Policy> = (0..random.usize(1..4)).map(|number| policy(random, number)).collect();
    let headers = [RateLimitHeaders::none, RateLimitHeaders::legacy, RateLimitHeaders::both, RateLimitHeaders::ietf];
    // The time of day goes on between two layers.
    let headers = headers[random.usize(0..4)]().reset_in_seconds();
    let exposes = [random.bool(), random.bool()];
    [true, false].map(|has_handle| {
        let answer = rig::responding(|request| {
            let mut response = Response::new(Text::default());
            if let Some(cost) = request.headers().get("x-cost") {
                response.extensions_mut().insert(ActualCost(u64::from(cost.as_bytes()[0] - b'0')));
            }
            response
        });
        let inner = RateLimitLayer::new(time::memory(clock), Policy::new("inner", Quota::per_second(1_000_000)));
        let inner = exposing(inner.headers(RateLimitHeaders::none()), exposes[0]);
        let outer = RateLimitLayer::composite(time::memory(clock)).policies(policies.clone()).headers(headers.clone());
        let outer = exposing(if has_handle { outer } else { outer.without_handle() }, exposes[1]);
        BoxCloneService::new(outer.layer(inner.layer(answer)).map_response(|response| response.map(drop)))
    })
}

/// Sends a request, and returns all that shows how it was decided.
fn shown(service: &Service, request: Request<String>) -> String {
    let response = rig::send(service, request);
    format!("{} {:?} {:?}", response.status(), response.headers(), response.extensions().get::<Decision>())
}

#[test]
fn a_request_is_decided_and_answered_as_with_a_handle() {
    let (mut admitted_and_refused, seeds) = ([0, 0], slow::seeds(SEEDS));
    for &seed in &seeds {
        let mut random = Rng::with_seed(seed);
        let clock = ManualClock::new();
        let [with, without] = services(&mut random, &clock);
        for number in 0..REQUESTS {
            let mut request = Request::new(String::new());
            let headers = request.headers_mut();
            headers.insert("x-user", HeaderValue::from_static(random.choice(["ada", "bob"]).expect("one of two")));
            if random.u8(0..4) == 0 {
                headers.insert("x-cost", HeaderValue::from(random.u16(0..6)));
            }
            let expected = shown(&with, request.clone());
            let place = format!("seed {seed}, request {number} of {:?}", request.headers());
            assert_eq!(shown(&without, request), expected, "{place}");
            admitted_and_refused[usize::from(expected.starts_with("429"))] += 1;
            clock.advance(Duration::from_millis(random.u64(0..800)));
        }
    }
    assert!(admitted_and_refused.iter().all(|count| *count > 50 * seeds.len()), "{admitted_and_refused:?}");
}

#[test]
fn a_service_finds_the_handles_of_layers_that_have_them() {
    let layer = |name, has_handle| {
        let layer = rig::layer([Policy::new(name, Quota::per_second(1_000_000))]);
        if has_handle { layer } else { layer.without_handle() }
    };
    let rows: [(bool, bool, &[&str]); 4] =
        [(true, true, &["inner", "outer"]), (false, true, &["inner"]), (true, false, &["outer"]), (false, false, &[])];
    for (outer, inner, expected) in rows {
        let service = rig::responding(|request| {
            let handles = std::iter::successors(request.extensions().get::<RateLimitHandle>(), |handle| handle.outer());
            let names: Vec<_> = handles.map(|handle| handle.decision().outcomes()[0].policy().to_owned()).collect();
            Response::new(Text::from(names.join(" ")))
        });
        let service = layer("outer", outer).layer(layer("inner", inner).layer(service));
        assert_eq!(rig::text(rig::send(&service, rig::request())), expected.join(" "));
    }
}

#[cfg(feature = "axum")]
#[test]
fn a_handler_can_do_without_a_handle() {
    let handler = async |handle: Option<RateLimitHandle>| handle.is_some().to_string();
    let routes = axum::Router::new().route("/", axum::routing::get(handler));
    assert_eq!(rig::text(rig::send(&routes, rig::request())), "false");
    let limited = routes.layer(rig::layer([Policy::new("all", Quota::per_minute(5))]));
    assert_eq!(rig::text(rig::send(&limited, rig::request())), "true");
}
