//! What was once given back that nobody had paid, and what was not.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::policy::Count;
use tollgate::response::ActualCost;
use tollgate::store::{Ask, Change, Check, Counter, LeaseStore, MaybeFuture, Receipt, Settlement, Settling, Store};
use tollgate::{
    Decision, Error, Key, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, RedisStore, Source, key,
};
use tower::Service;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::clock::ManualClock;
use crate::support::doubles::passes_on;
use crate::support::server::RedisServer;

type Text = Full<Bytes>;

const HOUR: Duration = Duration::from_secs(3_600);
const S: u64 = 1_000_000;

/// A store and its clock.
struct Rig {
    name: &'static str,
    clock: ManualClock,
    store: Arc<dyn Store>,
    _server: Option<RedisServer>,
}

impl Rig {
    fn layer(&self, policy: Policy) -> RateLimitLayer {
        RateLimitLayer::new(Arc::clone(&self.store), policy).expose_decisions()
    }

    async fn left(&self, quota: Quota) -> u64 {
        // What was sent before is done before.
        tokio::task::yield_now().await;
        let looked = self.store.decide(&[Check::new(counter(quota), 0)], Ask::default()).wait().await;
        looked.expect("the store answers").decision.outcomes()[0].remaining()
    }
}

fn counter(quota: Quota) -> Counter {
    counter_of(Key::new("global", ""), quota)
}

fn counter_of(key: Key, quota: Quota) -> Counter {
    Counter::new("policy".try_into().expect("a valid name"), key, quota)
}

async fn on_each_store(test: impl AsyncFn(&Rig)) {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::builder().clock(clock.reader()).build());
    test(&Rig { name: "memory", clock, store, _server: None }).await;
    let (clock, server) = (ManualClock::new(), RedisServer::start());
    let settings = RedisStore::builder().clock(clock.reader()).timeout(Duration::from_secs(10));
    let store = Arc::new(settings.connect(&server.url()).await.expect("the server was started"));
    test(&Rig { name: "Redis", clock, store, _server: Some(server) }).await;
}

fn handle(request: &Request<Text>) -> RateLimitHandle {
    request.extensions().get::<RateLimitHandle>().cloned().expect("the layer is outside")
}

fn cost(units: u64) -> Response<Text> {
    let mut response = Response::new(Text::default());
    response.extensions_mut().insert(ActualCost(units));
    response
}

fn shown(response: &Response<impl Sized>) -> u64 {
    response.headers()["x-ratelimit-remaining"].to_str().expect("ASCII").parse().expect("a number")
}

const ALL: [Quota; 4] = [
    Quota::fixed_window(100, HOUR),
    Quota::sliding_window(100, HOUR),
    Quota::sliding_log(100, HOUR),
    Quota::token_bucket(100, HOUR),
];

/// Serves one request of a metered policy, and returns what the handler left in its response.
async fn serve<F>(
    rig: &Rig,
    quota: Quota,
    handler: impl Fn(RateLimitHandle) -> F + Clone + Send + 'static,
) -> Response<impl Sized>
where
    F: Future<Output = Response<Text>> + Send + 'static,
{
    let service = rig.layer(Policy::new("policy", quota).metered()).layer(service_fn(move |request| {
        let answer = handler(handle(&request));
        async move { Ok::<_, Infallible>(answer.await) }
    }));
    service.oneshot(Request::new(Text::default())).await.expect("it does not fail")
}

/// Charges units at once.
async fn charge(handle: &RateLimitHandle, units: u64) {
    handle.charge(units);
    handle.flush().await.expect("the store answers");
}

/// Long enough for an answer of Redis.
async fn answered() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

#[tokio::test]
async fn many_small_charges_of_a_bucket_give_back_as_much_as_a_large_one() {
    on_each_store(async |rig| {
        // A unit a second.
        let quota = Quota::token_bucket(3_600, HOUR).burst(100);
        for (charges, units) in [(20, 1), (1, 20)] {
            let clock = rig.clock.clone();
            let handler = move |handle: RateLimitHandle| {
                let clock = clock.clone();
                async move {
                    for _ in 0..charges {
                        clock.set(clock.now() + S / 1_000);
                        charge(&handle, units).await;
                    }
                    clock.set(clock.now() + 2 * S);
                    cost(1)
                }
            };
            serve(rig, quota, handler).await;
            // What it owes was refilled meanwhile.
            assert_eq!(rig.left(quota).await, 100, "{}: {charges} charges", rig.name);
            rig.store.adjust(&counter(quota), Change::Reset).wait().await.expect("the store answers");
        }
    })
    .await;
}

#[tokio::test]
async fn what_was_charged_outside_of_a_runtime_can_be_given_back() {
    on_each_store(async |rig| {
        for quota in ALL {
            let handler = |handle: RateLimitHandle| async move {
                let charged = std::thread::spawn(move || futures::executor::block_on(charge(&handle, 50)));
                while !charged.is_finished() {
                    answered().await;
                }
                charged.join().expect("it does not panic");
                cost(5)
            };
            let response = serve(rig, quota, handler).await;
            assert_eq!(shown(&response), 95, "{}: {quota}", rig.name);
            assert_eq!(rig.left(quota).await, 95, "{}: {quota}", rig.name);
            rig.store.adjust(&counter(quota), Change::Reset).wait().await.expect("the store answers");
        }
    })
    .await;
}

#[tokio::test]
async fn a_runtime_that_ends_with_a_charge_on_its_way_holds_no_refund_up() {
    on_each_store(async |rig| {
        for quota in ALL {
            let handler = |handle: RateLimitHandle| async move {
                let other = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                {
                    let _entered = other.enter();
                    handle.charge(50);
                    let _ = handle.flush().now_or_never();
                }
                other.shutdown_background();
                answered().await;
                cost(0)
            };
            serve(rig, quota, handler).await;
            answered().await;
            // Memory has said at once what it took; else only what the decision took is known.
            let left = if rig.name == "memory" { 100 } else { 50 };
            assert_eq!(rig.left(quota).await, left, "{}: {quota}", rig.name);
            rig.store.adjust(&counter(quota), Change::Reset).wait().await.expect("the store answers");
        }
    })
    .await;
}

#[tokio::test]
async fn the_last_in_a_line_can_leave_it_one_after_the_other() {
    on_each_store(async |rig| {
        let quota = Quota::leaky_bucket(100, 1_000 * HOUR).queue(99);
        let handler = |handle: RateLimitHandle| async move {
            charge(&handle, 9).await;
            let mut response = cost(8);
            response.extensions_mut().insert(handle);
            response
        };
        let response = serve(rig, quota, handler).await;
        assert_eq!(rig.left(quota).await, 92, "{}", rig.name);
        let handle = response.extensions().get::<RateLimitHandle>().expect("it was kept");
        handle.refund(3);
        handle.flush().await.expect("the store answers");
        assert_eq!(rig.left(quota).await, 95, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn what_a_handle_asks_for_after_the_response_is_given_back_by_it_alone() {
    on_each_store(async |rig| {
        let (quota, later) = (Quota::fixed_window(100, HOUR), Quota::fixed_window(50, HOUR));
        let handler = |handle: RateLimitHandle| async move {
            let mut response = cost(1);
            response.extensions_mut().insert(handle);
            response
        };
        let response = serve(rig, quota, handler).await;
        let handle = response.extensions().get::<RateLimitHandle>().expect("it was kept");
        let metered = Policy::new("policy", later).metered();
        for _ in 0..10 {
            let _ = handle.check(&metered, &Key::new("user", "ada")).await.expect("the store answers");
        }
        handle.refund(4);
        handle.flush().await.expect("the store answers");
        let user = counter_of(Key::new("user", "ada"), later);
        let looked = rig.store.decide(&[Check::new(user, 0)], Ask::default()).wait().await;
        assert_eq!(looked.expect("the store answers").decision.outcomes()[0].remaining(), 44, "{}", rig.name);
        assert_eq!(rig.left(quota).await, 100, "{}: the request itself owes nothing more", rig.name);
    })
    .await;
}

/// Fails to get ready once it is told to.
#[derive(Clone, Default)]
struct Moody(Arc<AtomicBool>);

impl Service<Request<Text>> for Moody {
    type Response = Response<Text>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Response<Text>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(if self.0.load(Ordering::SeqCst) { Err("not today") } else { Ok(()) })
    }

    fn call(&mut self, _: Request<Text>) -> Self::Future {
        std::future::ready(Ok(Response::new(Text::default())))
    }
}

#[tokio::test]
async fn a_service_that_fails_to_get_ready_after_the_queue_answers_with_an_error() {
    for (count, left) in [(Count::successes(), 1), (Count::all(), 0)] {
        let clock = ManualClock::new();
        let store = Arc::new(MemoryStore::builder().clock(clock.reader()).build());
        let rig = Rig { name: "memory", clock, store, _server: None };
        // A millisecond in the queue, for two requests.
        let quota = Quota::leaky_bucket(3_600_000, HOUR).queue(1);
        let moody = Moody::default();
        let mut service = rig.layer(Policy::new("policy", quota).count(count.clone())).layer(moody.clone());
        let _first = service.ready().await.unwrap().call(Request::new(Text::default())).await.unwrap();
        let queued = service.ready().await.unwrap().call(Request::new(Text::default()));
        moody.0.store(true, Ordering::SeqCst);
        assert_eq!(queued.await.unwrap_err(), "not today");
        assert_eq!(rig.left(quota).await, left, "{count:?}");
    }
}

/// Settles, and says so after ten minutes.
struct Slow(MemoryStore);

impl Store for Slow {
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let settled = self.0.settle(receipt, changes).wait();
        MaybeFuture::pending(async {
            tokio::time::sleep(Duration::from_secs(600)).await;
            settled.await
        })
    }

    passes_on!(0: decide, adjust);
}

#[tokio::test(start_paused = true)]
async fn a_response_waits_for_what_may_decide_the_next_request_and_not_for_a_policy_in_shadow() {
    for (in_shadow, waits) in [(true, false), (false, true)] {
        let store = Slow(MemoryStore::new());
        let policy = Policy::new("policy", Quota::fixed_window(1, HOUR)).count(Count::failures());
        let policy = if in_shadow { policy.shadow() } else { policy };
        let layer = RateLimitLayer::new(store, policy);
        let service = layer.layer(service_fn(|_| async { Ok::<_, Infallible>(Response::new(Text::default())) }));
        let start = tokio::time::Instant::now();
        service.oneshot(Request::new(Text::default())).await.expect("it does not fail");
        assert_eq!(!start.elapsed().is_zero(), waits, "in shadow: {in_shadow}");
    }
}

/// Settles, and never says so.
struct Deaf(MemoryStore);

impl Store for Deaf {
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        drop(self.0.settle(receipt, changes));
        MaybeFuture::pending(async { Err(Error::store("nobody answers", std::io::Error::other("gone"))) })
    }

    passes_on!(0: decide, adjust);
}

#[tokio::test]
async fn a_charge_whose_answer_was_lost_is_not_made_again_nor_given_back() {
    for (real, left) in [(60, 40), (50, 49), (5, 49)] {
        let quota = Quota::fixed_window(100, HOUR);
        let store = Arc::new(Deaf(MemoryStore::builder().clock(ManualClock::new().reader()).build()));
        let rig = Rig { name: "deaf", clock: ManualClock::new(), store, _server: None };
        let service = rig.layer(Policy::new("policy", quota).metered()).layer(service_fn(move |request| async move {
            let handle = handle(&request);
            handle.charge(50);
            handle.flush().await.expect_err("the answer was lost");
            Ok::<_, Infallible>(cost(real))
        }));
        service.oneshot(Request::new(Text::default())).await.expect("it does not fail");
        assert_eq!(rig.left(quota).await, left, "a real cost of {real}");
    }
}

#[tokio::test]
async fn a_client_that_waits_for_its_answer_has_back_what_was_charged_meanwhile() {
    let server = RedisServer::start();
    for is_answered in [true, false] {
        let mut services = Vec::new();
        for _ in 0..2 {
            let store = RedisStore::connect(&server.url()).await.expect("the server was started");
            let policy = Policy::new("policy", Quota::per_hour(10)).key(key::header("x-key").plain()).metered();
            services.push(RateLimitLayer::new(store, policy).layer(service_fn(move |request| async move {
                let handle = handle(&request);
                handle.charge(9);
                let flushed = handle.flush();
                if is_answered {
                    flushed.await.expect("the store answers");
                } else {
                    let _ = flushed.now_or_never();
                }
                Ok::<_, Infallible>(cost(0))
            })));
        }
        let mut refused = 0;
        for number in 0..300 {
            let mut request = Request::new(Text::default());
            request.headers_mut().insert("x-key", is_answered.to_string().parse().expect("ASCII"));
            let response = services[number % 2].clone().oneshot(request).await.unwrap();
            refused += u32::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
        }
        assert_eq!(refused, 0, "of 300, answered before the response: {is_answered}");
    }
}

/// Charges, and panics.
struct Shaky(MemoryStore);

impl Store for Shaky {
    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        let is_charge = matches!(changes, [Settlement { change: Change::Charge(_), .. }]);
        let settling = self.0.settle(receipt, changes);
        assert!(!is_charge, "it was charged, but nobody hears of it");
        settling
    }

    passes_on!(0: decide, adjust);
}

#[tokio::test]
async fn a_charge_in_which_the_store_panicked_is_not_made_again() {
    let quota = Quota::fixed_window(100, HOUR);
    let store = Arc::new(Shaky(MemoryStore::builder().clock(ManualClock::new().reader()).build()));
    let rig = Rig { name: "shaky", clock: ManualClock::new(), store, _server: None };
    let handler = |handle: RateLimitHandle| async move {
        for _ in 0..3 {
            let charging = tokio::spawn({
                let handle = handle.clone();
                async move {
                    handle.charge(5);
                    handle.flush().await
                }
            });
            charging.await.expect_err("it panics");
        }
        Response::new(Text::default())
    };
    serve(&rig, quota, handler).await;
    assert_eq!(rig.left(quota).await, 100 - 1 - 15);
}

#[tokio::test]
async fn a_store_that_panics_when_a_response_is_settled_ends_that_request_alone() {
    let quota = Quota::fixed_window(100, HOUR);
    let store = Shaky(MemoryStore::builder().clock(ManualClock::new().reader()).build());
    let policies = ["first", "second"].map(|name| Policy::new(name, quota).metered());
    let layer = RateLimitLayer::composite(store).policies(policies);
    let service = layer.layer(service_fn(async |request: Request<Text>| {
        handle(&request).charge(5);
        Ok::<_, Infallible>(Response::new(Text::default()))
    }));
    // The other policy is not settled while the thread unwinds: that would end the process.
    let served = tokio::spawn(service.oneshot(Request::new(Text::default())));
    assert!(served.await.expect_err("it panics").is_panic());
}

#[tokio::test]
async fn stores_around_a_store_give_back_as_much_of_many_small_charges() {
    // A unit a second.
    let quota = Quota::token_bucket(3_600, HOUR).burst(100);
    for overdraft in [0, 50] {
        let clock = ManualClock::new();
        let inner = MemoryStore::builder().clock(clock.reader()).build();
        let store = LeaseStore::builder(inner).overdraft(overdraft).build();
        let rig = Rig { name: "leases", clock, store: Arc::new(store), _server: None };
        let source = async || {
            let response = serve(&rig, quota, |_| async { Response::new(Text::default()) }).await;
            response.extensions().get::<Decision>().map(Decision::source)
        };
        let mut before = 0;
        while source().await != Some(Source::Lease) {
            before += 1;
            assert!(before < 50, "{}: nothing was admitted by it", rig.name);
            answered().await;
        }
        let left = rig.left(quota).await;
        let clock = rig.clock.clone();
        let handler = move |handle: RateLimitHandle| {
            let clock = clock.clone();
            async move {
                for _ in 0..20 {
                    clock.set(clock.now() + S / 1_000);
                    charge(&handle, 1).await;
                }
                clock.set(clock.now() + 2 * S);
                cost(1)
            }
        };
        serve(&rig, quota, handler).await;
        answered().await;
        // What it owes was refilled meanwhile.
        let now = rig.left(quota).await;
        assert!(now + 3 >= left, "{}: {now} of {left} are left", rig.name);
    }
}

#[tokio::test]
async fn a_request_leaves_a_line_with_all_that_it_took_there() {
    on_each_store(async |rig| {
        let quota = Quota::leaky_bucket(100, 1_000 * HOUR).queue(99);
        let policy = Policy::new("policy", quota).count(Count::failures());
        let (line, none) = (policy.clone(), Policy::new("none", Quota::per_hour(100)));
        let service = rig.layer(none).layer(service_fn(move |request| {
            let line = line.clone();
            async move {
                for _ in 0..3 {
                    let _ = handle(&request).check(&line, &Key::new("global", "")).await.expect("the store answers");
                }
                Ok::<_, Infallible>(Response::new(Text::default()))
            }
        }));
        service.oneshot(Request::new(Text::default())).await.expect("it does not fail");
        answered().await;
        assert_eq!(rig.left(quota).await, 100, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_asks_one_counter_for_ever_is_shown_the_first_checks_and_settled_for_all() {
    on_each_store(async |rig| {
        let (quota, asked) = (Quota::fixed_window(100, HOUR), Quota::fixed_window(5_000, HOUR));
        let handler = move |handle: RateLimitHandle| async move {
            let policy = Policy::new("policy", asked).count(Count::failures());
            for _ in 0..500 {
                let _ = handle.check(&policy, &Key::new("user", "ada")).await.expect("the store answers");
            }
            Response::new(Text::default())
        };
        let response = serve(rig, quota, handler).await;
        let length: usize = response.headers().values().map(http::HeaderValue::len).sum();
        assert!(length < 8_000, "{}: {length} bytes of headers", rig.name);
        answered().await;
        let user = counter_of(Key::new("user", "ada"), asked);
        let looked = rig.store.decide(&[Check::new(user, 0)], Ask::default()).wait().await;
        let left = looked.expect("the store answers").decision.outcomes()[0].remaining();
        assert_eq!(left, 5_000, "{}: nothing counts", rig.name);
    })
    .await;
}
