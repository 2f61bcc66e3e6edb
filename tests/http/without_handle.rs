//! Layers that pass requests on without a handle: nothing else of them differs.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderValue, Request, Response};
use http_body_util::Empty;
use tollgate::body::ResponseBody;
use tollgate::response::ActualCost;
use tollgate::store::Store;
use tollgate::test_util::ManualClock;
use tollgate::{Decision, Policy, Quota, RateLimitHandle, RateLimitHeaders, RateLimitLayer, key};
use tower::util::BoxCloneService;
use tower::{Layer, Service};

use crate::rig;
use crate::support::{slow, time};

const REQUESTS: usize = 1_500;
const SEEDS: [u64; 2] = [3, 12];

type Body = Empty<Bytes>;
type Inner = BoxCloneService<Request<String>, Response<ResponseBody<Body>>, Infallible>;

/// What differs between the layers of two seeds.
struct Plan {
    policies: Vec<Policy>,
    headers: RateLimitHeaders,
    exposes: bool,
    inner_exposes: bool,
}

fn quota(random: &mut Rng) -> Quota {
    let (limit, window) = (random.u64(3..12), Duration::from_secs(random.u64(1..30)));
    match random.u8(0..4) {
        0 => Quota::token_bucket(limit, window),
        1 => Quota::fixed_window(limit, window),
        2 => Quota::sliding_log(limit, window),
        _ => Quota::sliding_window(limit, window),
    }
}

fn policy(random: &mut Rng, number: usize) -> Policy {
    let policy = Policy::new(&format!("policy-{number}"), quota(random)).cost(random.u64(1..3));
    let policy = if random.bool() { policy.key(key::header("x-user")) } else { policy };
    match random.u8(0..8) {
        0 => policy.shadow(),
        1 => policy.metered(),
        2 => policy.refund_dropped(),
        3 => policy.unadvertised(),
        _ => policy,
    }
}

fn plan(random: &mut Rng) -> Plan {
    Plan {
        policies: (0..random.usize(1..4)).map(|number| policy(random, number)).collect(),
        headers: random
            .choice([
                RateLimitHeaders::none(),
                RateLimitHeaders::legacy(),
                RateLimitHeaders::both(),
                RateLimitHeaders::ietf(),
            ])
            .expect("one"),
        exposes: random.bool(),
        inner_exposes: random.bool(),
    }
}

impl Plan {
    fn layer(&self, store: impl Store) -> RateLimitLayer {
        // The time of day goes on between two layers.
        let headers = self.headers.clone().reset_in_seconds();
        let layer = RateLimitLayer::composite(store).policies(self.policies.clone()).headers(headers);
        if self.exposes { layer.expose_decisions() } else { layer }
    }

    /// The service inside, with a layer of its own around it that admits everything.
    fn inner(&self, clock: &ManualClock) -> Inner {
        let answer = rig::responding(|request| {
            let mut response = Response::new(Body::default());
            if let Some(cost) = request.headers().get("x-cost") {
                response.extensions_mut().insert(ActualCost(u64::from(cost.as_bytes()[0] - b'0')));
            }
            response
        });
        let inner = Policy::new("inner", Quota::per_second(1_000_000));
        let layer = RateLimitLayer::new(time::memory(clock), inner).headers(RateLimitHeaders::none());
        let layer = if self.inner_exposes { layer.expose_decisions() } else { layer };
        BoxCloneService::new(layer.layer(answer))
    }
}

/// Sends a request, and returns all that shows how it was decided.
fn shown<S, B>(service: &S, request: Request<String>) -> String
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    let response = rig::send(service, request);
    format!("{} {:?} {:?}", response.status(), response.headers(), response.extensions().get::<Decision>())
}

#[test]
fn a_request_is_decided_and_answered_as_with_a_handle() {
    let (mut admitted_and_refused, seeds) = ([0, 0], slow::seeds(SEEDS));
    for &seed in &seeds {
        let mut random = Rng::with_seed(seed);
        let (plan, clock) = (plan(&mut random), ManualClock::new());
        let with = plan.layer(time::memory(&clock)).layer(plan.inner(&clock));
        let without = plan.layer(time::memory(&clock)).without_handle().layer(plan.inner(&clock));
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
            Response::new(rig::Text::from(names.join(" ")))
        });
        let service = layer("outer", outer).layer(layer("inner", inner).layer(service));
        assert_eq!(rig::text(rig::send(&service, rig::request())), expected.join(" "));
    }
}

#[cfg(feature = "axum")]
#[test]
fn a_handler_can_do_without_a_handle() {
    use axum::routing::{Router, get};

    let handler = async |handle: Option<RateLimitHandle>| handle.is_some().to_string();
    let layer = || rig::layer([Policy::new("all", Quota::per_minute(5))]);
    let routes = || Router::new().route("/", get(handler));
    for (routes, has_one) in
        [(routes(), "false"), (routes().layer(layer().without_handle()), "false"), (routes().layer(layer()), "true")]
    {
        let response = rig::send(&routes, rig::request());
        assert_eq!(response.status(), 200);
        assert_eq!(rig::now(axum::body::to_bytes(response.into_body(), 16)), has_one);
    }
}
