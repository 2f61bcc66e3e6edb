//! What clients cause, and closures and handlers of the application with each of their requests.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures::future::join_all;
use http::{Request, StatusCode};
use tollgate::policy::{AccessList, TierLookup};
use tollgate::{Ban, Key, Limiter, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, Rule, key};
use tollgate_bandwidth::{BandwidthLayer, OnLimit};
use tower::ServiceExt;

use super::{FLOOD, Row, app, assert_bounded, flood, request, run, send, send_twice};
use crate::rig::MANY;

const HOUR: Duration = Duration::from_secs(3_600);
const ONE: Quota = Quota::fixed_window(1, HOUR);

pub(super) const ROWS: [Row; 13] = [
    ("key_banned", || run(bans())),
    ("key_unknown", lookups_that_fail),
    ("list_without_address", || run(unknown_addresses())),
    ("lookup_failed", lookups_that_fail),
    ("lookups_full", || run(lookups_at_once())),
    ("many_checks", || run(checks_of_a_handler())),
    ("near_limit", || run(send_twice(layer(per_user(Quota::fixed_window(9, HOUR))).log_near_limit(1.0)))),
    ("denied", || run(send_twice(layer(per_user(ONE)).log_denials()))),
    ("forbidden", || run(denied_addresses())),
    ("rejection_streamed", streamed_rejections),
    ("shadow_denied", || flood(per_user(ONE).shadow())),
    ("tier_unknown", tiers_that_fail),
    ("tier_without_portions", || run(tiers_of_bytes())),
];

#[test]
fn a_flood_of_requests_is_few_lines() {
    assert_bounded(&ROWS);
}

fn layer(policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(MemoryStore::new(), policy)
}

fn per_user(quota: Quota) -> Policy {
    Policy::new("flooded", quota).key(key::header("x-user"))
}

/// A ban of each of many keys: by refusals, and by strikes outside of a request.
async fn bans() {
    let ban = Ban::new(1, HOUR, HOUR).of_verified_keys();
    send_twice(layer(per_user(ONE).ban(ban))).await;
    let limiter = Limiter::new(MemoryStore::new(), [Rule::new("flooded", ONE).ban(ban)]);
    for number in 0..FLOOD {
        limiter.strike(&Key::new("user", number.to_string())).await.expect("memory never fails");
    }
}

fn lookups_that_fail() {
    let account = key::lookup(key::header("x-user"), async |_| Err::<Option<Key>, _>("the directory is away"));
    flood(Policy::new("flooded", MANY).key(account));
}

fn tiers_that_fail() {
    flood(per_user(MANY).tier_lookup(TierLookup::new(async |_| Err::<Option<Quota>, _>("the directory is away"))));
}

async fn lookups_at_once() {
    let account = key::lookup(key::header("x-user"), |_| async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Ok::<_, Infallible>(None::<Key>)
    });
    let app = app(&layer(Policy::new("flooded", MANY).key(account.in_flight(1))));
    join_all((0..FLOOD).map(|number| app.clone().oneshot(request(&number.to_string())))).await;
}

async fn unknown_addresses() {
    let list = AccessList::parse(["10.0.0.0/8"]).expect("a CIDR");
    send(app(&layer(Policy::new("flooded", MANY).deny(list))), (0..FLOOD).map(|_| Request::default())).await;
}

async fn denied_addresses() {
    let list = AccessList::parse(["10.0.0.0/8"]).expect("a CIDR");
    send_twice(layer(per_user(MANY).deny(list)).log_denials()).await;
}

async fn checks_of_a_handler() {
    let policy = Policy::new("rows", MANY).metered();
    let handler = async move |handle: RateLimitHandle| {
        for number in 0..3 * FLOOD {
            let _ = handle.check(&policy, &Key::new("row", number.to_string())).await.expect("memory never fails");
        }
    };
    send(Router::new().route("/", get(handler)).layer(layer(per_user(MANY))), [request("ada")]).await;
}

fn streamed_rejections() {
    let layer = layer(per_user(ONE)).on_denied(|_, _| {
        let chunks = futures::stream::pending::<Result<Bytes, Infallible>>();
        (StatusCode::IM_A_TEAPOT, Body::from_stream(chunks))
    });
    run(send_twice(layer));
}

async fn tiers_of_bytes() {
    let policy = per_user(MANY).tier(|_| Some(Quota::leaky_bucket(1_000, HOUR)));
    let layer = BandwidthLayer::responses(layer(policy), OnLimit::Throttle);
    let app = Router::new().route("/", get(|| async { "bytes" })).layer(layer);
    send(app, (0..FLOOD).map(|number| request(&number.to_string()))).await;
}
