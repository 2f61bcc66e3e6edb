//! Layers that pass requests on without a handle: nothing else of them differs.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures::FutureExt;
use http::{HeaderValue, Request, Response};
use http_body_util::Empty;
use tollgate::body::ResponseBody;
use tollgate::response::ActualCost;
use tollgate::store::Store;
use tollgate::test_util::ManualClock;
use tollgate::{Decision, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitHeaders, RateLimitLayer, key};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

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
        let answer = service_fn(|request: Request<String>| {
            let mut response = Response::new(Body::default());
            if let Some(cost) = request.headers().get("x-cost") {
                response.extensions_mut().insert(ActualCost(u64::from(cost.as_bytes()[0] - b'0')));
            }
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let inner = Policy::new("inner", Quota::per_second(1_000_000));
        let layer = RateLimitLayer::new(time::memory(clock), inner).headers(RateLimitHeaders::none());
        let layer = if self.inner_exposes { layer.expose_decisions() } else { layer };
        BoxCloneService::new(layer.layer(answer))
    }
}

/// Sends a request, and returns all that shows how it was decided.
fn shown<S, B>(service: &mut S, request: Request<String>) -> String
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible>,
{
    let ready = service.ready().now_or_never().expect("it is ready").expect("it does not fail");
    let response = ready.call(request).now_or_never().expect("the store decides at once").expect("it does not fail");
    format!("{} {:?} {:?}", response.status(), response.headers(), response.extensions().get::<Decision>())
}

#[test]
fn a_request_is_decided_and_answered_as_with_a_handle() {
    let (mut admitted_and_refused, seeds) = ([0, 0], slow::seeds(SEEDS));
    for &seed in &seeds {
        let mut random = Rng::with_seed(seed);
        let (plan, clock) = (plan(&mut random), ManualClock::new());
        let mut with = plan.layer(time::memory(&clock)).layer(plan.inner(&clock));
        let mut without = plan.layer(time::memory(&clock)).without_handle().layer(plan.inner(&clock));
        for number in 0..REQUESTS {
            let mut request = Request::new(String::new());
            let headers = request.headers_mut();
            headers.insert("x-user", HeaderValue::from_static(random.choice(["ada", "bob"]).expect("one of two")));
            if random.u8(0..4) == 0 {
                headers.insert("x-cost", HeaderValue::from(random.u16(0..6)));
            }
            let expected = shown(&mut with, request.clone());
            let place = format!("seed {seed}, request {number} of {:?}", request.headers());
            assert_eq!(shown(&mut without, request), expected, "{place}");
            admitted_and_refused[usize::from(expected.starts_with("429"))] += 1;
            clock.advance(Duration::from_millis(random.u64(0..800)));
        }
    }
    assert!(admitted_and_refused.iter().all(|count| *count > 50 * seeds.len()), "{admitted_and_refused:?}");
}

/// The policies whose decisions the service finds in its handle, innermost layer first; none without a handle.
fn found(outer: &RateLimitLayer, inner: &RateLimitLayer) -> Vec<String> {
    let (finds, found) = std::sync::mpsc::channel();
    let service = service_fn(move |request: Request<String>| {
        let handle = request.extensions().get::<RateLimitHandle>();
        let each = std::iter::successors(handle, |handle| handle.outer());
        let names = each.map(|handle| handle.decision().outcomes()[0].policy().to_owned()).collect();
        finds.send(names).expect("the test waits for it");
        std::future::ready(Ok::<_, Infallible>(Response::new(Body::default())))
    });
    let response = outer.layer(inner.layer(service)).oneshot(Request::new(String::new()));
    assert!(response.now_or_never().expect("the store decides at once").is_ok());
    found.recv().expect("the service was called")
}

#[test]
fn a_service_finds_the_handles_of_layers_that_have_them() {
    let layer = |name| RateLimitLayer::new(MemoryStore::new(), Policy::new(name, Quota::per_second(1_000_000)));
    let (outer, inner) = (layer("outer"), layer("inner"));
    let (no_outer, no_inner) = (layer("outer").without_handle(), layer("inner").without_handle());
    assert_eq!(found(&outer, &inner), ["inner", "outer"]);
    assert_eq!(found(&no_outer, &inner), ["inner"]);
    assert_eq!(found(&outer, &no_inner), ["outer"]);
    assert!(found(&no_outer, &no_inner).is_empty());
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_handler_can_do_without_a_handle() {
    use axum::routing::{Router, get};

    let handler = async |handle: Option<RateLimitHandle>| handle.is_some().to_string();
    let layer = || RateLimitLayer::new(MemoryStore::new(), Policy::new("all", Quota::per_minute(5)).key(key::global()));
    let routes = || Router::new().route("/", get(handler));
    for (routes, has_one) in
        [(routes(), "false"), (routes().layer(layer().without_handle()), "false"), (routes().layer(layer()), "true")]
    {
        let response = routes.oneshot(Request::new(axum::body::Body::empty())).await.expect("it does not fail");
        assert_eq!(response.status(), 200);
        assert_eq!(axum::body::to_bytes(response.into_body(), 16).await.expect("a body"), has_one);
    }
}
