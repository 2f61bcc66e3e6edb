//! Requests whose checks follow from their keys alone take a shorter way than others: it must not differ otherwise.
//!
//! The same random requests go to two layers of the same policies, on one clock. The store of the second cannot decide
//! without a receipt, so that all of its requests go the longer way.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures::FutureExt;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Decision, Handle, Headers, Key, MissingKey, Policy, Quota, RateLimitLayer, Store, key};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::time;

/// As long as a layer watches its requests, all of them go the longer way.
const WATCHED: usize = 1_000;
const AFTER: usize = 1_500;
const SEEDS: u64 = 8;

const SECOND: Duration = Duration::from_secs(1);

type Text = Full<Bytes>;

/// What a handler does with its limits, by the header `x-act`.
fn act(handle: &Handle, act: u8) -> Option<Decision> {
    let account = Policy::new("account", Quota::fixed_window(20, 60 * SECOND)).metered();
    match act {
        0 => {
            let checked = handle.check(&account, Key::new("account", "ada")).now_or_never();
            return Some(checked.expect("the store decides at once").expect("it is there"));
        }
        1 => handle.charge(2),
        2 => handle.refund(1),
        _ => {}
    }
    None
}

/// Returns what the handler has seen.
async fn handle(request: Request<Text>) -> Result<Response<Text>, std::convert::Infallible> {
    let limits = request.extensions().get::<Handle>().expect("the layer inserts it").clone();
    let number = request.headers().get("x-act").map_or(u8::MAX, |act| act.as_bytes()[0] - b'0');
    let checked = act(&limits, number);
    let seen = format!("{:?} {checked:?} {}", limits.decision(), limits.slots().is_empty());
    let mut response = Response::new(Text::from(seen));
    response.extensions_mut().insert(limits);
    Ok(response)
}

fn quota(random: &mut Rng) -> Quota {
    let (limit, window) = (random.u64(3..12), SECOND * random.u32(1..30));
    match random.u8(0..5) {
        0 => Quota::token_bucket(limit, window),
        1 => Quota::token_bucket(limit, window).burst(limit + 3),
        2 => Quota::fixed_window(limit, window),
        3 => Quota::sliding_log(limit, window),
        _ => Quota::sliding_window(limit, window),
    }
}

fn policy(random: &mut Rng, number: usize) -> Policy {
    let policy = Policy::new(&format!("policy-{number}"), quota(random)).cost(random.u64(1..4));
    let policy = match random.u8(0..4) {
        0 => policy.key(key::header("x-user").plain()),
        1 => policy.key(key::header("x-user")),
        2 => policy.key(key::header("x-org").plain()),
        _ => policy,
    };
    let policy = match random.u8(0..5) {
        0 => policy.missing_key(MissingKey::Deny),
        1 => policy.missing_key(MissingKey::Share),
        2 => policy.missing_key(MissingKey::Skip),
        _ => policy,
    };
    match random.u8(0..12) {
        0 => policy.shadow(),
        1 => policy.unadvertised(),
        2 => policy.metered(),
        _ => policy,
    }
}

fn request(random: &mut Rng) -> impl Fn() -> Request<Text> + use<> {
    let (method, is_preflight) = if random.u8(0..20) == 0 { (Method::OPTIONS, true) } else { (Method::GET, false) };
    let user = random.choice([Some("ada"), Some("bob"), Some("cyd"), None]).flatten();
    let (org, twice) = (random.choice(["x", "y"]), random.u8(0..30) == 0);
    let act = (random.u8(0..4) == 0).then(|| b'0' + random.u8(0..3));
    move || {
        let mut request = Request::new(Text::default());
        *request.method_mut() = method.clone();
        let headers = request.headers_mut();
        let mut insert =
            |name: &'static str, value: &'static str| headers.append(name, HeaderValue::from_static(value));
        user.map(|user| insert("x-user", user));
        org.map(|org| insert("x-org", org));
        if twice {
            insert("x-user", "eve");
        }
        if is_preflight {
            insert("origin", "https://example.com");
            insert("access-control-request-method", "GET");
        }
        if let Some(act) = act {
            headers.insert("x-act", HeaderValue::from_bytes(&[act]).expect("a digit"));
        }
        request
    }
}

fn layer(store: impl Store, policies: &[Policy]) -> RateLimitLayer {
    let layer = RateLimitLayer::composite(store).headers(Headers::both().reset_in_seconds()).expose_decisions();
    policies.iter().cloned().fold(layer, RateLimitLayer::policy)
}

/// Sends a request, and returns all that shows how it was decided, with the handle that the handler left.
fn shown<S, B>(service: &mut S, request: Request<Text>) -> (String, Option<Handle>)
where
    S: Service<Request<Text>, Response = Response<B>, Error = std::convert::Infallible>,
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let ready = service.ready().now_or_never().expect("it is ready").expect("it does not fail");
    let response = ready.call(request).now_or_never().expect("the store decides at once").expect("it does not fail");
    let (parts, body) = response.into_parts();
    let body = body.collect().now_or_never().expect("it is there").expect("it does not fail").to_bytes();
    let decision = parts.extensions.get::<Decision>();
    let shown = format!("{} {:?} {decision:?} {body:?}", parts.status, parts.headers);
    (shown, parts.extensions.get::<Handle>().cloned())
}

#[test]
fn a_plain_request_is_decided_as_any_other() {
    let mut admitted_and_refused = [0, 0];
    for seed in 0..SEEDS {
        let mut random = Rng::with_seed(seed);
        let policies: Vec<_> = (0..random.usize(1..5)).map(|number| policy(&mut random, number)).collect();
        let clock = ManualClock::new();
        let inner = service_fn(handle);
        let mut short = layer(time::memory(&clock), &policies).layer(inner);
        let mut long = layer(FailingStore::new(time::memory(&clock)), &policies).layer(inner);
        for number in 0..WATCHED + AFTER {
            let request = request(&mut random);
            let ((one, kept), (other, also_kept)) = (shown(&mut short, request()), shown(&mut long, request()));
            assert_eq!(one, other, "seed {seed}, request {number} of {:?}", request().headers());
            admitted_and_refused[usize::from(one.starts_with("429"))] += 1;
            // A handle may be used after the response.
            if let (Some(kept), Some(also_kept)) = (kept, also_kept)
                && random.u8(0..10) == 0
            {
                let late = random.u8(0..3);
                let [one, other] = [kept, also_kept].map(|handle| format!("{:?}", act(&handle, late)));
                assert_eq!(one, other, "seed {seed}, after request {number}");
            }
            clock.advance(Duration::from_millis(random.u64(0..800)));
        }
    }
    assert!(admitted_and_refused.iter().all(|count| *count > 1_000), "{admitted_and_refused:?}");
}
