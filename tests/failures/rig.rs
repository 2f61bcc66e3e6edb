//! A store whose mood a test sets, and requests to a layer around it.

use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::body::ResponseBody;
use tollgate::store::Store;
use tollgate::test_util::{FailingStore, ManualClock};
use tollgate::{Decision, Error, MemoryStore, Policy, Quota, RateLimitLayer, Source, key};
use tollgate_test::{Recorded, RecordingStore};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::doubles::away;
use crate::support::time::memory;

pub(crate) type Answered = Response<ResponseBody<Full<Bytes>>>;

/// No more is admitted than this by the shared store in a test.
pub(crate) const MANY: Quota = Quota::per_hour(1_000);

/// What a store does with the next questions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    /// Decides at once.
    Decides,
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

/// A store whose mood a test sets, and what it was asked.
pub(crate) struct Moody<S = MemoryStore> {
    failing: FailingStore<S>,
    recording: RecordingStore<FailingStore<S>>,
    counts: Mutex<Counts>,
}

/// How many decisions were asked of a store so far, and how many changes to its receipts it was told of.
#[derive(Clone, Copy, Default)]
struct Counts {
    asked: u64,
    settled: usize,
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
        let moody = Self { recording: RecordingStore::new(failing.clone()), failing, counts: Mutex::default() };
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
    pub(crate) fn asked(&self) -> u64 {
        self.counts().asked
    }

    /// How many changes to its receipts it was told of.
    pub(crate) fn settled(&self) -> usize {
        self.counts().settled
    }

    fn counts(&self) -> Counts {
        let mut counts = self.counts.lock().expect("nobody panics here");
        for call in self.recording.take() {
            match call {
                Recorded::Decide(_) => counts.asked += 1,
                Recorded::Settle(_, changes) => counts.settled += changes.len(),
                _ => {}
            }
        }
        *counts
    }
}

pub(crate) fn per_user(quota: Quota) -> Policy {
    Policy::new("user", quota).key(key::header("x-user"))
}

/// A layer with one policy, by user.
pub(crate) fn layer(store: &Moody<impl Store>, quota: Quota) -> RateLimitLayer {
    RateLimitLayer::new(store.store(), per_user(quota))
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
    layer.clone().expose_decisions().layer(serve).oneshot(request).await.expect("a response")
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
