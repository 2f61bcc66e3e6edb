//! A fleet shedder while its store fails: nobody waits for it, critical requests are served, and others up to the share of
//! this process.

use std::convert::Infallible;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, sleep};
use tollgate::body::ResponseBody;
use tollgate::store::BreakerState;
use tollgate::test_util::ManualClock;
use tollgate::{Decision, OnFailure, Quota, RateLimitHandle, RateLimitLayer, Source};
use tollgate_shed::{Class, FleetShedLayer, Shed};
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

use crate::rig::{MANY, Mood, Moody, ms, per_user};
use crate::support::log::Log;

type Answered = Response<ResponseBody<Full<Bytes>>>;

/// 20 at once, of which 4 are kept, in two processes: 8 others in each, while they cannot share.
fn shedder(store: &Moody) -> FleetShedLayer {
    let quota = Quota::concurrency(20).slot_ttl(Duration::from_secs(3));
    FleetShedLayer::new(store.store(), "fleet", quota, 0.2).instances(NonZeroU32::new(2).expect("not 0"))
}

async fn ask(layer: &FleetShedLayer, class: Class) -> Answered {
    let hello = |request: Request<Full<Bytes>>| async move {
        let mut response = Response::new(Full::from("hello"));
        response
            .extensions_mut()
            .insert(request.extensions().get::<RateLimitHandle>().expect("of the shedder").decision());
        Ok::<_, Infallible>(response)
    };
    let mut request = Request::new(Full::default());
    request.extensions_mut().insert(class);
    layer.layer(service_fn(hello)).oneshot(request).await.expect("a response")
}

/// The responses of those of so many requests that are served; their bodies hold their slots.
async fn served(layer: &FleetShedLayer, requests: usize, class: Class) -> Vec<Answered> {
    let mut served = Vec::new();
    for _ in 0..requests {
        let response = ask(layer, class).await;
        let is_shed = response.extensions().get::<Shed>().is_some();
        assert_eq!(response.status().as_u16(), if is_shed { 503 } else { 200 });
        if !is_shed {
            served.push(response);
        }
    }
    served
}

#[tokio::test]
async fn without_the_store_others_get_the_share_of_this_process_and_critical_requests_are_served() {
    for mood in [Mood::Fails, Mood::Hangs, Mood::DecidesIn(ms(300))] {
        let store = Moody::with_clock(mood, &ManualClock::paused());
        let layer = shedder(&store);
        let mut held = Vec::new();
        for class in [Class::Write, Class::Critical, Class::Write] {
            for _ in 0..30 {
                let began = Instant::now();
                held.extend(served(&layer, 1, class).await);
                assert!(began.elapsed() <= ms(102), "{mood:?}: {:?}", began.elapsed());
            }
        }
        assert_eq!(held.len(), 8 + 30, "{mood:?}");
        let decision = held[0].extensions().get::<Decision>().expect("a decision");
        assert_eq!(decision.source(), Source::Fallback);
    }
}

#[tokio::test]
async fn slots_are_shared_again_within_a_second_of_the_store_being_back() {
    let store = Moody::with_clock(Mood::Decides, &ManualClock::paused());
    let layer = shedder(&store);
    assert_eq!(served(&layer, 30, Class::Read).await.len(), 16);
    store.becomes(Mood::Fails);
    drop(served(&layer, 30, Class::Read).await);
    assert_eq!(layer.breaker_state(), BreakerState::Open);
    sleep(Duration::from_secs(5)).await;
    drop(served(&layer, 1, Class::Read).await);
    store.becomes(Mood::Decides);
    for _ in 0..20 {
        sleep(ms(50)).await;
        drop(served(&layer, 1, Class::Read).await);
    }
    assert_eq!(layer.breaker_state(), BreakerState::Closed);
    assert_eq!(served(&layer, 30, Class::Read).await.len(), 16, "none was lost");
}

#[tokio::test]
async fn an_episode_is_logged_once_also_without_the_store() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let store = Moody::with_clock(Mood::Fails, &ManualClock::paused());
    let layer = shedder(&store);
    let held = served(&layer, 30, Class::Read).await;
    let began = log.lines("code=\"shedding\"");
    assert!(began.len() == 1 && began[0].contains("policy=\"fleet\" class=\"read\""), "{began:?}");
    drop(held);
    sleep(Duration::from_secs(61)).await;
    drop(served(&layer, 2, Class::Read).await);
    let ended = log.lines("code=\"shedding_ended\"");
    assert!(ended.len() == 1 && ended[0].contains("shed=22"), "{ended:?}");
}

/// A limit inside of the shedder, whose own store fails, and which then denies.
#[tokio::test]
async fn a_limit_inside_that_denies_without_its_store_is_no_shedder_and_keeps_no_slot() {
    let log = Log::default();
    let _noting = log.note(Level::INFO);
    let (store, away) = (Moody::new(Mood::Decides), Moody::new(Mood::Fails));
    let layer = shedder(&store);
    let limits = RateLimitLayer::new(away.store(), per_user(MANY)).on_failure(OnFailure::Deny);
    let hello = |_: Request<Full<Bytes>>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))) };
    for class in [Class::Critical, Class::Read] {
        for _ in 0..40 {
            let mut request = Request::new(Full::<Bytes>::default());
            request.headers_mut().insert("x-user", HeaderValue::from_static("ada"));
            request.extensions_mut().insert(class);
            let response = layer.layer(limits.layer(service_fn(hello))).oneshot(request).await.expect("a response");
            assert_eq!(response.status(), 503);
            assert!(response.extensions().get::<Shed>().is_none(), "{class:?}");
            let document = response.into_body().collect().await.expect("a body").to_bytes();
            let document = String::from_utf8_lossy(&document).into_owned();
            assert!(document.contains("#temporary-reduced-capacity"), "{document}");
            assert!(!document.contains("violated-policies"), "no policy and no shedder is named: {document}");
        }
    }
    assert_eq!(log.count("code=\"shedding\""), 0, "{}", log.text());
    assert_eq!(served(&layer, 30, Class::Write).await.len(), 16, "all slots are free");
}
