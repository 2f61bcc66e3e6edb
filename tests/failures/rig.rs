//! A store whose mood a test sets, and requests to a layer around it.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::{sleep, timeout_at};
use tollgate::store::{
    Answer, Applied, Change, Check, Clock, Counter, Deadline, Decided, Receipt, Settlement, Settling,
};
use tollgate::{Decision, Error, MemoryStore, Policy, Quota, RateLimitLayer, ResponseBody, Source, Store, key};
use tower::{Layer, ServiceExt, service_fn};

pub(crate) type Answered = Response<ResponseBody<Full<Bytes>>>;

/// No more is admitted than this by the shared store in a test.
pub(crate) const MANY: Quota = Quota::per_hour(1_000);

/// A multiple of 30 days.
pub(crate) const EPOCH: Duration = Duration::from_secs(656 * 30 * 86_400);

/// What a store does with the next questions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mood {
    /// Decides at once.
    Decides,
    /// Decides at once, and says that it asked nobody.
    Remembers,
    /// Decides, and tells it so late.
    DecidesIn(Duration),
    /// Fails at once.
    Fails,
    /// Fails, so late.
    FailsIn(Duration),
    /// Says that it is asked what never can be decided.
    Refuses,
    /// Never answers.
    Hangs,
}

#[derive(Clone)]
pub(crate) struct Moody {
    shared: Arc<Shared>,
}

struct Shared {
    memory: MemoryStore,
    mood: Mutex<Mood>,
    asked: AtomicU64,
    settled: AtomicU64,
    budget: Option<Duration>,
}

impl Moody {
    pub(crate) fn new(mood: Mood) -> Self {
        Self::with_budget(mood, None)
    }

    /// With a budget of its own it keeps deadlines, but not that.
    pub(crate) fn with_budget(mood: Mood, budget: Option<Duration>) -> Self {
        Self::with_clock(mood, budget, || EPOCH)
    }

    pub(crate) fn with_clock(mood: Mood, budget: Option<Duration>, clock: impl Clock) -> Self {
        let memory = MemoryStore::builder().with_clock(clock).build();
        let (asked, settled) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { shared: Arc::new(Shared { memory, mood: Mutex::new(mood), asked, settled, budget }) }
    }

    pub(crate) fn becomes(&self, mood: Mood) {
        *self.shared.mood.lock().expect("nobody panics here") = mood;
    }

    fn mood(&self) -> Mood {
        *self.shared.mood.lock().expect("nobody panics here")
    }

    /// How many decisions were asked of it so far.
    pub(crate) fn asked(&self) -> u64 {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// How many changes to its receipts it was told of.
    pub(crate) fn settled(&self) -> u64 {
        self.shared.settled.load(Ordering::Relaxed)
    }
}

pub(crate) fn away() -> Error {
    Error::store("the store is away", std::io::Error::other("gone"))
}

impl Moody {
    /// As its mood is.
    fn decided(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        self.shared.asked.fetch_add(1, Ordering::Relaxed);
        let decide = |checks: &[Check]| self.shared.memory.decide(checks, deadline);
        match self.mood() {
            Mood::Decides => decide(checks),
            Mood::Remembers => {
                let Answer::Ready(Ok(Decided { decision, receipt, .. })) = decide(checks) else {
                    panic!("memory decides")
                };
                let decision = Decision::new(decision.outcomes().iter().cloned(), Source::DenyCache);
                Answer::Ready(Ok(Decided::new(decision, receipt)))
            }
            Mood::DecidesIn(time) => {
                let decided = decide(checks);
                Answer::pending(async move {
                    sleep(time).await;
                    decided.wait().await
                })
            }
            Mood::Fails => Answer::Ready(Err(away())),
            Mood::FailsIn(time) => Answer::pending(async move {
                sleep(time).await;
                Err(away())
            }),
            Mood::Refuses => Answer::Ready(Err(Quota::try_per_second(0).expect_err("a limit of 0"))),
            Mood::Hangs => Answer::pending(pending()),
        }
    }
}

impl Store for Moody {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        match (self.decided(checks, deadline), self.shared.budget.and(deadline.instant())) {
            (Answer::Pending(pending), Some(at)) => {
                Answer::pending(async move { timeout_at(at, pending).await.unwrap_or_else(|_| Err(away())) })
            }
            (decided, _) => decided,
        }
    }

    fn settle(&self, receipt: Receipt, changes: &[Settlement]) -> Settling {
        self.shared.settled.fetch_add(changes.len() as u64, Ordering::Relaxed);
        self.shared.memory.settle(receipt, changes)
    }

    fn adjust(&self, counter: &Counter, change: Change) -> Answer<Result<Applied, Error>> {
        let adjust = || self.shared.memory.adjust(counter, change);
        match self.mood() {
            Mood::Decides | Mood::Remembers | Mood::Refuses => adjust(),
            Mood::DecidesIn(time) => {
                let adjusted = adjust();
                Answer::pending(async move {
                    sleep(time).await;
                    adjusted.wait().await
                })
            }
            Mood::Fails => Answer::Ready(Err(away())),
            Mood::FailsIn(time) => Answer::pending(async move {
                sleep(time).await;
                Err(away())
            }),
            Mood::Hangs => Answer::pending(pending()),
        }
    }

    fn reset(&self, counter: &Counter) -> Answer<Result<(), Error>> {
        self.shared.memory.reset(counter)
    }

    fn budget(&self) -> Option<Duration> {
        self.shared.budget
    }
}

pub(crate) fn per_user(quota: Quota) -> Policy {
    Policy::new("user", quota).key(key::header("x-user"))
}

/// A layer with one policy, by user.
pub(crate) fn layer(store: &Moody, quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(store.clone(), per_user(quota))
}

/// The answer to a request of a user to a service that answers with a status at once.
pub(crate) async fn answer(layer: &RateLimitLayer, user: &'static str, status: u16) -> Answered {
    let serve = service_fn(move |_: Request<Full<Bytes>>| async move {
        let mut response = Response::new(Full::from("hello"));
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        Ok::<_, Infallible>(response)
    });
    let mut request = Request::new(Full::default());
    request.headers_mut().insert("x-user", HeaderValue::from_static(user));
    layer.layer(serve).oneshot(request).await.expect("a response")
}

/// The answer to a request that is served with 200 if it is admitted.
pub(crate) async fn ask(layer: &RateLimitLayer, user: &'static str) -> Answered {
    answer(layer, user, 200).await
}

pub(crate) fn source(response: &Answered) -> Source {
    response.extensions().get::<Decision>().expect("a decision among the extensions").source()
}

/// Who decides about the next request of a user with units left.
pub(crate) async fn decided_by(layer: &RateLimitLayer) -> Source {
    let response = ask(layer, "ada").await;
    assert_eq!(response.status(), 200);
    source(&response)
}

#[track_caller]
pub(crate) fn header(response: &Answered, name: &str) -> String {
    let value = response.headers().get(name).unwrap_or_else(|| panic!("no {name}"));
    value.to_str().expect("ASCII").to_owned()
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
