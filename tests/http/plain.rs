//! Requests whose checks follow from their keys alone take a shorter way than others: it must not differ otherwise.
//!
//! The same random requests go to two layers of the same policies, on one clock. The store of the second cannot decide
//! without a receipt, so that all of its requests go the longer way. The same holds for stores that decide
//! some requests by themselves, by leases or by cached refusals.

use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use futures::FutureExt;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use tollgate::test_util::{FailingStore, ManualClock, send};
use tollgate::{
    BreakerState, Decision, DenyCache, Handle, Headers, Key, LeaseStore, MemoryStore, MissingKey, OnFailure, Policy,
    Quota, RateLimitLayer, Store, key,
};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{slow, time};

/// As long as a layer watches its requests, all of them go the longer way.
const WATCHED: usize = 1_000;
const AFTER: usize = 1_500;
/// Of most histories few requests are refused, or few admitted; of this one there are enough to tell.
const MIXED: u64 = 1;
/// Beside it.
const SEEDS: [u64; 2] = [1, 8];
/// How many requests show that there were some of a kind.
const ENOUGH: [usize; 2] = [125, 1_000];

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

/// What became of the requests of all histories.
#[derive(Debug, Default)]
struct Seen {
    admitted: usize,
    refused: usize,
    by_lease: usize,
    by_cache: usize,
}

impl Seen {
    fn note(&mut self, shown: &str) {
        *(if shown.starts_with("429") { &mut self.refused } else { &mut self.admitted }) += 1;
        self.by_lease += usize::from(shown.contains("source: Lease"));
        self.by_cache += usize::from(shown.contains("source: DenyCache"));
    }

    #[track_caller]
    fn assert_enough(&self, counts: [usize; 2]) {
        assert!(counts.into_iter().all(|count| count > slow::many(ENOUGH)), "{self:?}");
    }
}

/// Runs histories over two stores of a kind; `steps` are the most milliseconds from one request to the next, and
/// `compare` is called with both stores after each.
fn histories<S: Store + Clone>(
    policies: impl Fn(&mut Rng) -> Vec<Policy>,
    steps: u64,
    store: impl Fn(&ManualClock) -> S,
    compare: impl Fn(&S, &S),
) -> Seen {
    let mut seen = Seen::default();
    for seed in [vec![MIXED], slow::seeds(SEEDS)].concat() {
        let mut random = Rng::with_seed(seed);
        let policies = policies(&mut random);
        let (clock, inner) = (ManualClock::new(), service_fn(handle));
        let (store, other_store) = (store(&clock), store(&clock));
        let mut short = layer(store.clone(), &policies).layer(inner);
        let mut long = layer(FailingStore::new(other_store.clone()), &policies).layer(inner);
        for number in 0..WATCHED + AFTER {
            let request = request(&mut random);
            let ((one, kept), (other, also_kept)) = (shown(&mut short, request()), shown(&mut long, request()));
            assert_eq!(one, other, "seed {seed}, request {number} of {:?}", request().headers());
            seen.note(&one);
            // A handle may be used after the response.
            if let (Some(kept), Some(also_kept)) = (kept, also_kept)
                && random.u8(0..10) == 0
            {
                let late = random.u8(0..3);
                let [one, other] = [kept, also_kept].map(|handle| format!("{:?}", act(&handle, late)));
                assert_eq!(one, other, "seed {seed}, after request {number}");
            }
            clock.advance(Duration::from_millis(random.u64(0..steps)));
        }
        compare(&store, &other_store);
    }
    seen
}

fn several(random: &mut Rng) -> Vec<Policy> {
    (0..random.usize(1..5)).map(|number| policy(random, number)).collect()
}

/// Of which nothing is settled, and by which refusals are cached.
fn one(random: &mut Rng) -> Vec<Policy> {
    vec![Policy::new("policy", quota(random)).cost(random.u64(1..4)).key(key::header("x-user").plain())]
}

/// With units enough for leases, which are used up now and then.
fn ample(random: &mut Rng) -> Vec<Policy> {
    let (limit, window) = (random.u64(400..1_200), SECOND * random.u32(5..20));
    let quota = match random.u8(0..3) {
        0 => Quota::token_bucket(limit, window),
        1 => Quota::fixed_window(limit, window),
        _ => Quota::sliding_window(limit, window),
    };
    vec![Policy::new("policy", quota).cost(random.u64(1..3)).key(key::header("x-user").plain())]
}

#[test]
fn a_plain_request_is_decided_as_any_other() {
    let seen = histories(several, 800, time::memory, |_, _| {});
    seen.assert_enough([seen.admitted, seen.refused]);
}

#[test]
fn a_plain_request_is_refused_from_a_cache_as_any_other() {
    let cached = |clock: &ManualClock| {
        DenyCache::builder().with_clock(clock.clone()).build(time::memory(clock)).expect("valid settings")
    };
    let same = |one: &DenyCache<MemoryStore>, other: &DenyCache<MemoryStore>| {
        assert_eq!(one.refused_from_cache(), other.refused_from_cache());
    };
    for (policies, steps) in [(several as fn(&mut Rng) -> Vec<Policy>, 800), (one, 400), (one, 100)] {
        let seen = histories(policies, steps, cached, same);
        seen.assert_enough([seen.admitted, seen.by_cache]);
    }
}

#[test]
fn a_plain_request_is_admitted_by_leases_as_any_other() {
    let leasing = |clock: &ManualClock| {
        LeaseStore::builder(time::memory(clock)).with_clock(clock.clone()).build().expect("valid settings")
    };
    let same = |one: &LeaseStore, other: &LeaseStore| assert_eq!(one.counts(), other.counts());
    let seen = histories(ample, 8, leasing, same);
    seen.assert_enough([seen.by_lease, seen.refused]);
    let seen = histories(several, 800, leasing, same);
    seen.assert_enough([seen.admitted, seen.refused]);
}

/// While the breaker is open the rules decide, also what leases cover.
#[test]
fn what_this_process_could_decide_follows_the_rules_while_the_store_fails() {
    let clock = ManualClock::new();
    let failing = FailingStore::new(time::memory(&clock));
    let leases = LeaseStore::builder(failing.clone()).with_clock(clock.clone()).build().expect("valid settings");
    let policy = Policy::new("user", Quota::fixed_window(100_000, 60 * SECOND)).key(key::header("x-user"));
    let layer = RateLimitLayer::new(leases.clone(), policy).on_failure(OnFailure::Deny);
    let of = |user: &'static str| {
        let request = |_: usize| Request::builder().header("x-user", user).body(()).expect("valid");
        send(&layer, 1, request).now_or_never().expect("the store decides at once").remove(0)
    };
    for _ in 0..WATCHED + 100 {
        assert!(of("ada").is_admitted());
    }
    failing.fail();
    assert!(of("ada").is_admitted() && leases.counts().held() > 1, "a lease covers it");
    let failed = (0..100).take_while(|_| layer.breaker_state() == BreakerState::Closed);
    assert!(failed.inspect(|_| assert_eq!(of("bob").status(), 503)).count() < 100, "it opens");
    assert_eq!(of("ada").status(), 503);
    assert!(leases.counts().held() > 0);
}
