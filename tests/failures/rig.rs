//! A store whose mood a test sets, and requests to a layer around it.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::body::ResponseBody;
use tollgate::store::{BreakerState, Store};
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Decision, Error, MemoryStore, Policy, Quota, RateLimitLayer, Source, key};
use tollgate_test::{Recorded, RecordingStore};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::doubles::away;
use crate::support::time::memory;

pub(crate) type Answered = Response<ResponseBody<Full<Bytes>>>;

/// No more is admitted than this by the shared store in a test.
pub(crate) const MANY: Quota = Quota::per_hour(1_000);

/// Failures in a row after which a store is not asked.
pub(crate) const MOST: usize = 5;

/// What a store does with the next questions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    /// Decides at once.
    Decides,
    /// Decides, and tells it so late.
    DecidesIn(Duration),
    /// Fails at once.
    Fails,
    /// Fails at once, as its connection has ended.
    Closes,
    /// Fails, so late.
    FailsIn(Duration),
    /// Says that it is asked what never can be decided.
    Refuses,
    /// Never answers.
    Hangs,
}

/// A store whose mood a test sets, and what it was asked.
pub(crate) struct Moody<S = MemoryStore> {
    failing: FailingStore<S>,
    recording: RecordingStore<FailingStore<S>>,
}

impl Moody {
    pub(crate) fn new(mood: Mood) -> Self {
        Self::with_clock(mood, &ManualClock::new())
    }

    pub(crate) fn with_clock(mood: Mood, clock: &ManualClock) -> Self {
        Self::around(mood, memory(clock))
    }
}

impl<S: Store> Moody<S> {
    pub(crate) fn around(mood: Mood, inner: S) -> Self {
        let failing = FailingStore::new(inner);
        let moody = Self { recording: RecordingStore::new(failing.clone()), failing };
        moody.becomes(mood);
        moody
    }

    /// What a layer is given.
    pub(crate) fn store(&self) -> RecordingStore<FailingStore<S>> {
        self.recording.clone()
    }

    pub(crate) fn becomes(&self, mood: Mood) {
        match mood {
            Mood::Decides | Mood::DecidesIn(_) => self.failing.work(),
            Mood::Fails | Mood::FailsIn(_) => self.failing.fail_with(away),
            Mood::Refuses => self.failing.fail_with(|| Quota::try_per_second(0).expect_err("a limit of 0")),
            Mood::Closes => self.failing.fail(),
            Mood::Hangs => self.failing.hang(),
        }
        if let Mood::DecidesIn(time) | Mood::FailsIn(time) = mood {
            self.failing.delay(time);
        }
    }

    /// From now on it fails at once, with this error.
    pub(crate) fn fail_with(&self, error: impl Fn() -> Error + Send + Sync + 'static) {
        self.failing.fail_with(error);
    }

    /// How many decisions were asked of it so far.
    pub(crate) fn asked(&self) -> usize {
        self.recording.recorded().iter().filter(|call| matches!(call, Recorded::Decide(_))).count()
    }

    /// How many changes to its receipts it was told of.
    pub(crate) fn settled(&self) -> usize {
        let changes = |call| if let Recorded::Settle(_, changes) = call { changes.len() } else { 0 };
        self.recording.recorded().into_iter().map(changes).sum()
    }
}

pub(crate) fn per_user(quota: Quota) -> Policy {
    Policy::new("user", quota).key(key::header("x-user"))
}

/// A layer with one policy, by user.
pub(crate) fn layer(store: &Moody<impl Store>, quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(store.store(), per_user(quota))
}

/// Whether a layer asks its store.
pub(crate) fn state(layer: &RateLimitLayer) -> BreakerState {
    layer.clone().live().breaker_state()
}

/// A layer whose store failed so often that it is not asked.
pub(crate) async fn broken(store: &Moody, set: impl FnOnce(RateLimitLayer) -> RateLimitLayer) -> RateLimitLayer {
    let layer = set(layer(store, MANY));
    store.becomes(Mood::Fails);
    for _ in 0..MOST {
        assert_eq!(state(&layer), BreakerState::Closed);
        assert_eq!(decided_by(&layer).await, Source::Fallback);
    }
    assert_eq!(state(&layer), BreakerState::Open);
    layer
}

/// The answer to a request of a user to a service that answers with a status at once.
pub(crate) async fn answer(layer: &RateLimitLayer, user: &'static str, status: u16) -> Answered {
    let serve = service_fn(move |_: Request<Full<Bytes>>| async move {
        let response = Response::builder().status(status).body(Full::from("hello"));
        Ok::<_, Infallible>(response.expect("a status"))
    });
    let request = Request::builder().header("x-user", user).body(Full::default()).expect("a request");
    layer.clone().expose_decisions().layer(serve).oneshot(request).await.expect("a response")
}

/// The answer to a request that is served with 200 if it is admitted.
pub(crate) async fn ask(layer: &RateLimitLayer, user: &'static str) -> Answered {
    answer(layer, user, 200).await
}

pub(crate) fn source(response: &Answered) -> Source {
    response.extensions().get::<Decision>().expect("a decision among the extensions").source()
}

/// The status of a response, and who decided it.
pub(crate) fn told(response: &Answered) -> (u16, Source) {
    (response.status().as_u16(), source(response))
}

/// Who decides about the next request of a user with units left.
pub(crate) async fn decided_by(layer: &RateLimitLayer) -> Source {
    let (status, source) = told(&ask(layer, "ada").await);
    assert_eq!(status, 200);
    source
}

#[track_caller]
pub(crate) fn header(response: &Answered, name: &str) -> String {
    let value = response.headers().get(name).unwrap_or_else(|| panic!("no {name}"));
    value.to_str().expect("ASCII").to_owned()
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
