//! What the README promises of policies beside each other, and what its pages may publish.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use fastrand::Rng;
use futures::FutureExt;
use http::{Request, Response};
use tollgate::body::ResponseBody;
use tollgate::policy::Count;
use tollgate::response::ActualCost;
use tollgate::{Ban, Key, Policy, Quota, RateLimitLayer, key};
use tower::{Layer, ServiceExt, service_fn};

use crate::rig::{Text, layer, left, request, responding, send, text, with};

const HOUR: Duration = Duration::from_secs(3_600);

/// A policy of each kind that accounts for something else.
fn policies() -> Vec<Policy> {
    let of = |name, limit| Policy::new(name, Quota::fixed_window(limit, HOUR)).key(key::peer_ip());
    let tier = |limit| {
        move |parts: &http::request::Parts| {
            parts.headers.contains_key("x-plan").then(|| Quota::fixed_window(limit, HOUR))
        }
    };
    vec![
        of("plain", 1_000_000),
        of("cost", 1_000_000).cost(10),
        of("metered", 1_000_000).cost(10).metered(),
        of("failures", 1_000_000).count(Count::failures()),
        of("successes", 1_000_000).count(Count::successes()),
        of("bans", 1_000_000).ban_failures(Ban::new(100_000, HOUR, HOUR), Count::failures()),
        of("tier", 1_000_000).tier(tier(2_000_000)),
        of("shadow", 10).shadow(),
        of("dropped", 1_000_000).refund_dropped(),
        Policy::new("slots", Quota::concurrency(1_000)).key(key::peer_ip()),
    ]
}

type Held = Response<ResponseBody<Text>>;

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
enum End {
    Read,
    Unread,
    Held,
    Dropped,
}

/// Sends a request that ends so, and returns its response if that is held.
fn end(layer: &RateLimitLayer, request: Request<String>, (status, cost, end): (u16, Option<u64>, End)) -> Option<Held> {
    if let End::Dropped = end {
        let never = service_fn(|_: Request<String>| pending::<Result<Response<Text>, Infallible>>());
        assert!(layer.layer(never).oneshot(request).now_or_never().is_none());
        return None;
    }
    let service = layer.layer(responding(move |_| {
        let mut response = Response::builder().status(status).body(Text::from("hello")).expect("a response");
        cost.map(|cost| response.extensions_mut().insert(ActualCost(cost)));
        response
    }));
    let response = send(&service, request);
    assert_eq!(response.status(), status, "it is admitted");
    match end {
        End::Held => return Some(response),
        End::Read => assert_eq!(text(response), "hello"),
        End::Unread | End::Dropped => {}
    }
    None
}

#[test]
fn policies_in_one_layer_account_for_each_request_as_each_of_them_does_alone() {
    let client = Key::new("ip", "10.0.0.1");
    for seed in 0..4 {
        let (mut random, mut held) = (Rng::with_seed(seed), Vec::new());
        let joint = layer(policies());
        let alone: Vec<_> = policies().into_iter().map(|policy| layer([policy])).collect();
        for number in 0..300 {
            let status = random.choice([200, 200, 401, 503]).expect("one");
            let cost = random.bool().then(|| random.u64(0..40));
            let ends = random.choice([End::Read, End::Unread, End::Held, End::Dropped]).expect("one");
            let request = if random.bool() { with(request(), "x-plan", "pro") } else { request() };
            let all = [&joint].into_iter().chain(&alone);
            held.extend(all.filter_map(|layer| end(layer, request.clone(), (status, cost, ends))));
            if random.u8(0..8) == 0 {
                held.clear();
            }
            let together = left(&joint.clone().live().limiter(), &client);
            let apart: Vec<_> = alone.iter().flat_map(|layer| left(&layer.clone().live().limiter(), &client)).collect();
            assert_eq!(together, apart, "seed {seed}, request {number}: {status} {cost:?} {ends:?}");
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
