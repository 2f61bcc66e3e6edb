//! What a layer's policies make of it.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::{Policy, Quota, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use super::rig::Rig;

const QUOTA: Quota = Quota::token_bucket(2, Duration::from_secs(3_600));

/// The statuses of some requests to a service that answers 200, and how often the store was asked.
fn flood(policies: impl IntoIterator<Item = Policy>) -> (Vec<u16>, u64) {
    let rig = Rig::new();
    let layer = RateLimitLayer::composite(rig.store.clone()).policies(policies);
    let answer =
        |_: Request<Full<Bytes>>| std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())));
    let service = layer.layer(service_fn(answer));
    let send = |_| {
        let response = service.clone().oneshot(Request::default());
        response.now_or_never().expect("memory answers at once").expect("it does not fail").status().as_u16()
    };
    let statuses = (0..8).map(send).collect();
    (statuses, rig.calls())
}

fn policy() -> Policy {
    Policy::new("policy", QUOTA)
}

const REFUSED: [u16; 8] = [200, 200, 429, 429, 429, 429, 429, 429];

#[test]
fn a_flood_costs_the_store_one_call() {
    assert_eq!(flood([policy()]), (REFUSED.to_vec(), 3));
    let wide = Policy::new("wide", Quota::per_hour(100));
    let wider = Policy::new("wider", Quota::per_hour(100));
    assert_eq!(flood([wide, policy(), wider]), (REFUSED.to_vec(), 3));
}
