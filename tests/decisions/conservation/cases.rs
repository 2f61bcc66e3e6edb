//! What was once given back that nobody had paid, and what was not.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use tokio::time::{Instant, sleep};
use tollgate::policy::Count;
use tollgate::response::ActualCost;
use tollgate::store::{Ask, Change, Check, Counter, LeaseStore, MaybeFuture, Settlement, Store};
use tollgate::test_util::FailingStore;
use tollgate::{Decision, Key, MemoryStore, Policy, Quota, RateLimitHandle, RateLimitLayer, RedisStore, Source};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::clock::ManualClock;
use crate::support::doubles::{away, settles_by};
use crate::support::server::RedisServer;

type Text = Full<Bytes>;

const HOUR: Duration = Duration::from_secs(3_600);
const HUNDRED: Quota = Quota::fixed_window(100, HOUR);
const LINE: Quota = Quota::leaky_bucket(100, Duration::from_secs(3_600_000)).queue(99);
/// A unit a second.
const BUCKET: Quota = Quota::token_bucket(3_600, HOUR).burst(100);
const MS: u64 = 1_000;

/// A store and its clock.
struct Rig {
    name: &'static str,
    clock: ManualClock,
    store: Arc<dyn Store>,
    _server: Option<RedisServer>,
}

impl Rig {
    /// A store around one in memory.
    fn around<S: Store>(name: &'static str, wrap: impl FnOnce(MemoryStore) -> S) -> Self {
        let clock = ManualClock::new();
        let store = Arc::new(wrap(MemoryStore::builder().clock(clock.reader()).build()));
        Self { name, clock, store, _server: None }
    }

    async fn redis() -> Self {
        let (clock, server) = (ManualClock::new(), RedisServer::start());
        let settings = RedisStore::builder().clock(clock.reader()).timeout(Duration::from_secs(10));
        let store = Arc::new(settings.connect(&server.url()).await.expect("the server was started"));
        Self { name: "Redis", clock, store, _server: Some(server) }
    }

    fn layer(&self, policy: Policy) -> RateLimitLayer {
        RateLimitLayer::new(Arc::clone(&self.store), policy).expose_decisions()
    }

    /// Serves one request of a metered policy, and returns what the handler left in its response.
    async fn serve<F>(
        &self,
        quota: Quota,
        handler: impl Fn(RateLimitHandle) -> F + Clone + Send + 'static,
    ) -> Response<impl Sized>
    where
        F: Future<Output = Response<Text>> + Send + 'static,
    {
        let service = self.layer(Policy::new("policy", quota).metered()).layer(service_fn(move |request| {
            let answer = handler(handle(&request));
            async move { Ok::<_, Infallible>(answer.await) }
        }));
        service.oneshot(Request::new(Text::default())).await.expect("it does not fail")
    }

    async fn left(&self, quota: Quota) -> u64 {
        self.left_of(Key::new("global", ""), quota).await
    }

    async fn left_of(&self, key: Key, quota: Quota) -> u64 {
        // What was sent before is done before.
        tokio::task::yield_now().await;
        let counter = Counter::new("policy".try_into().expect("a valid name"), key, quota);
        let looked = self.store.decide(&[Check::new(counter, 0)], Ask::default()).wait().await;
        looked.expect("the store answers").decision.outcomes()[0].remaining()
    }
}

async fn on_each_store(test: impl AsyncFn(&Rig)) {
    test(&Rig::around("memory", |memory| memory)).await;
    test(&Rig::redis().await).await;
}

fn handle(request: &Request<Text>) -> RateLimitHandle {
    request.extensions().get::<RateLimitHandle>().cloned().expect("the layer is outside")
}

fn cost(units: u64) -> Response<Text> {
    let mut response = Response::new(Text::default());
    response.extensions_mut().insert(ActualCost(units));
    response
}

/// Charges units at once.
async fn charge(handle: &RateLimitHandle, units: u64) {
    handle.charge(units);
    handle.flush().await.expect("the store answers");
}

/// Long enough for an answer of Redis.
async fn answered() {
    sleep(Duration::from_millis(20)).await;
}

/// Serves a request that charges so often, a millisecond apart, and really costs one unit two seconds later.
async fn charge_often(rig: &Rig, charges: u64, units: u64) {
    let clock = rig.clock.clone();
    let handler = move |handle: RateLimitHandle| {
        let clock = clock.clone();
        async move {
            for _ in 0..charges {
                clock.set(clock.now() + MS);
                charge(&handle, units).await;
            }
            clock.set(clock.now() + 2_000 * MS);
            cost(1)
        }
    };
    rig.serve(BUCKET, handler).await;
}

#[tokio::test]
async fn many_small_charges_of_a_bucket_give_back_as_much_as_a_large_one() {
    for (charges, units) in [(20, 1), (1, 20)] {
        on_each_store(async |rig| {
            charge_often(rig, charges, units).await;
            // What it owes was refilled meanwhile.
            assert_eq!(rig.left(BUCKET).await, 100, "{}: {charges} charges", rig.name);
        })
        .await;
    }
    for overdraft in [0, 50] {
        let rig = Rig::around("leases", |inner| LeaseStore::builder(inner).overdraft(overdraft).build());
        let source = async || {
            let response = rig.serve(BUCKET, |_| async { Response::new(Text::default()) }).await;
            response.extensions().get::<Decision>().map(Decision::source)
        };
        while source().await != Some(Source::Lease) {
            answered().await;
        }
        let left = rig.left(BUCKET).await;
        charge_often(&rig, 20, 1).await;
        answered().await;
        let now = rig.left(BUCKET).await;
        assert!(now + 3 >= left, "an overdraft of {overdraft}: {now} of {left} are left");
    }
}

#[tokio::test]
async fn what_was_charged_outside_of_a_runtime_can_be_given_back() {
    on_each_store(async |rig| {
        let handler = |handle: RateLimitHandle| async move {
            let charged = std::thread::spawn(move || futures::executor::block_on(charge(&handle, 50)));
            while !charged.is_finished() {
                answered().await;
            }
            cost(5)
        };
        let response = rig.serve(HUNDRED, handler).await;
        assert_eq!(response.headers()["x-ratelimit-remaining"], "95", "{}", rig.name);
        assert_eq!(rig.left(HUNDRED).await, 95, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn the_last_in_a_line_can_leave_it_one_after_the_other() {
    on_each_store(async |rig| {
        let handler = |handle: RateLimitHandle| async move {
            charge(&handle, 9).await;
            let mut response = cost(8);
            response.extensions_mut().insert(handle);
            response
        };
        let response = rig.serve(LINE, handler).await;
        assert_eq!(rig.left(LINE).await, 92, "{}", rig.name);
        let handle = response.extensions().get::<RateLimitHandle>().expect("it was kept");
        handle.refund(3);
        handle.flush().await.expect("the store answers");
        assert_eq!(rig.left(LINE).await, 95, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_request_leaves_a_line_with_all_that_it_took_there() {
    on_each_store(async |rig| {
        let line = Policy::new("policy", LINE).count(Count::failures());
        let service = rig.layer(Policy::new("none", Quota::per_hour(100))).layer(service_fn(move |request| {
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
        assert_eq!(rig.left(LINE).await, 100, "{}", rig.name);
    })
    .await;
}

#[tokio::test]
async fn a_handler_that_asks_one_counter_for_ever_is_shown_the_first_checks_and_settled_for_all() {
    on_each_store(async |rig| {
        let asked = Quota::fixed_window(5_000, HOUR);
        let handler = move |handle: RateLimitHandle| async move {
            let policy = Policy::new("policy", asked).count(Count::failures());
            for _ in 0..500 {
                let _ = handle.check(&policy, &Key::new("user", "ada")).await.expect("the store answers");
            }
            Response::new(Text::default())
        };
        let response = rig.serve(HUNDRED, handler).await;
        let length: usize = response.headers().values().map(HeaderValue::len).sum();
        assert!(length < 8_000, "{}: {length} bytes of headers", rig.name);
        answered().await;
        assert_eq!(rig.left_of(Key::new("user", "ada"), asked).await, 5_000, "{}: nothing counts", rig.name);
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
        let rig = Rig::around("memory", |memory| memory);
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

#[tokio::test(start_paused = true)]
async fn a_response_waits_for_what_may_decide_the_next_request_and_not_for_a_policy_in_shadow() {
    for in_shadow in [true, false] {
        let (store, start) = (FailingStore::new(MemoryStore::new()), Instant::now());
        let policy = Policy::new("policy", Quota::fixed_window(1, HOUR)).count(Count::failures());
        let layer = RateLimitLayer::new(store.clone(), if in_shadow { policy.shadow() } else { policy });
        let service = layer.layer(service_fn(move |_: Request<Text>| {
            store.delay(Duration::from_millis(50));
            async { Ok::<_, Infallible>(Response::new(Text::default())) }
        }));
        service.oneshot(Request::new(Text::default())).await.expect("it does not fail");
        assert_eq!(start.elapsed().is_zero(), in_shadow);
    }
}

#[tokio::test]
async fn a_charge_whose_answer_was_lost_is_not_made_again_nor_given_back() {
    for (real, left) in [(60, 40), (50, 49), (5, 49)] {
        let rig = Rig::around("deaf", |memory| {
            settles_by(memory, |memory, receipt, changes| {
                drop(memory.settle(receipt, changes));
                MaybeFuture::pending(async { Err(away()) })
            })
        });
        let handler = move |handle: RateLimitHandle| async move {
            handle.charge(50);
            handle.flush().await.expect_err("the answer was lost");
            cost(real)
        };
        rig.serve(HUNDRED, handler).await;
        assert_eq!(rig.left(HUNDRED).await, left, "a real cost of {real}");
    }
}

#[tokio::test]
async fn a_store_that_panics_when_a_response_is_settled_ends_that_request_alone() {
    let shaky = settles_by(MemoryStore::new(), |memory, receipt, changes| {
        assert!(!matches!(changes, [Settlement { change: Change::Charge(_), .. }]), "it panics");
        memory.settle(receipt, changes)
    });
    let policies = ["first", "second"].map(|name| Policy::new(name, HUNDRED).metered());
    let service =
        RateLimitLayer::composite(shaky).policies(policies).layer(service_fn(async |request: Request<Text>| {
            handle(&request).charge(5);
            Ok::<_, Infallible>(Response::new(Text::default()))
        }));
    // The other policy is not settled while the thread unwinds: that would end the process.
    let served = tokio::spawn(service.oneshot(Request::new(Text::default())));
    assert!(served.await.expect_err("it panics").is_panic());
}
