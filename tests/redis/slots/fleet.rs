//! Slots of a fleet shedder in two processes, of which one is killed while it holds them.

use std::convert::Infallible;
use std::env;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::sleep;
use tollgate::body::ResponseBody;
use tollgate::{Decision, Quota, RateLimitHandle, Source};
use tollgate_shed::{Class, FleetShedLayer, Shed};
use tower::{Layer, ServiceExt, service_fn};

use super::dying::{Other, VARIABLE};
use super::{PATIENCE, store};
use crate::support::server::RedisServer;

const NAME: &str = "slots::fleet::a_fleet_has_the_slots_of_a_process_that_is_killed_within_a_life";
const LIFE: Duration = Duration::from_secs(3);
/// Of 100 slots, for requests that are not critical.
const OTHERS: usize = 80;

type Answered = Response<ResponseBody<Full<Bytes>>>;

async fn shedder(url: &str) -> FleetShedLayer {
    let quota = Quota::concurrency(100).slot_ttl(LIFE);
    FleetShedLayer::new(store(url).await, "fleet", quota, 0.2).timeout(PATIENCE)
}

/// The response to a request, which holds its slot, unless it was shed.
async fn ask(layer: &FleetShedLayer, class: Class) -> Option<Answered> {
    let hello = |request: Request<Full<Bytes>>| async move {
        let mut response = Response::new(Full::from("hello"));
        response
            .extensions_mut()
            .insert(request.extensions().get::<RateLimitHandle>().expect("of the shedder").decision());
        Ok::<_, Infallible>(response)
    };
    let mut request = Request::new(Full::default());
    request.extensions_mut().insert(class);
    let response = layer.layer(service_fn(hello)).oneshot(request).await.expect("a response");
    if response.extensions().get::<Shed>().is_some() {
        return None;
    }
    assert_eq!(response.extensions().get().map(Decision::source), Some(Source::Store));
    Some(response)
}

/// What the other process does.
async fn hold_all(url: &str) {
    let (layer, mut held) = (shedder(url).await, Vec::new());
    for _ in 0..OTHERS {
        held.push(ask(&layer, Class::Read).await.expect("a slot"));
    }
    println!("all are held");
    sleep(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_fleet_has_the_slots_of_a_process_that_is_killed_within_a_life() {
    if let Ok(url) = env::var(VARIABLE) {
        return hold_all(&url).await;
    }
    let redis = RedisServer::start();
    let mut other = Other::start(NAME, &redis.url());
    let layer = shedder(&redis.url()).await;
    // It renews them.
    let start = Instant::now();
    while start.elapsed() < LIFE * 3 / 2 {
        assert!(ask(&layer, Class::Write).await.is_none(), "after {:?}", start.elapsed());
        assert!(ask(&layer, Class::Critical).await.is_some(), "critical requests are served");
        sleep(Duration::from_millis(50)).await;
    }
    other.kill();
    let (killed, mut held) = (Instant::now(), Vec::new());
    while held.len() < OTHERS {
        held.extend(ask(&layer, Class::Write).await);
        assert!(killed.elapsed() < LIFE + PATIENCE, "{} slots are free {:?} after it", held.len(), killed.elapsed());
        sleep(Duration::from_millis(2)).await;
    }
    println!("all slots of the dead process were free after {:?}", killed.elapsed());
    assert!(ask(&layer, Class::Write).await.is_none(), "there are no more");
}
