//! A directory that counts what is looked up in it, and requests to a layer that asks it.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::sleep;
use tollgate::body::ResponseBody;
use tollgate::key::{self, Extracted, KeyExtractor, Lookup};
use tollgate::policy::TierLookup;
use tollgate::store::Store;
use tollgate::test_util::ManualClock;
use tollgate::{Key, MemoryStore, Policy, Quota, RateLimitLayer, RedisStore};
use tollgate_test::{Recorded, RecordingStore};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::server::RedisServer;
use crate::support::time;

pub(crate) type Answered = Response<ResponseBody<Full<Bytes>>>;
pub(crate) type Text = Full<Bytes>;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const MANY: Quota = Quota::fixed_window(100_000, HOUR);
pub(crate) const PRO: Quota = Quota::fixed_window(200_000, HOUR);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How often something was looked up.
#[derive(Clone, Default)]
pub(crate) struct Directory(Arc<AtomicUsize>);

impl Directory {
    pub(crate) fn asked(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Finds a quota for everybody, so late.
    pub(crate) fn tiers(&self, after: Duration) -> TierLookup {
        self.tiers_by(move |_| async move {
            sleep(after).await;
            Ok(Some(PRO))
        })
    }

    pub(crate) fn tiers_by<F, T>(&self, find: F) -> TierLookup
    where
        F: Fn(Lookup) -> T + Send + Sync + 'static,
        T: Future<Output = Result<Option<Quota>, &'static str>> + Send + 'static,
    {
        let directory = self.clone();
        TierLookup::new(move |wanted| {
            directory.count();
            find(wanted)
        })
    }

    /// Finds an account for every token, so late.
    pub(crate) fn accounts(&self, after: Duration) -> key::KeyLookup {
        self.accounts_by(move |token| async move {
            sleep(after).await;
            Ok(Extracted::Key(Key::new("account", token.text().expect("a token"))))
        })
    }

    pub(crate) fn accounts_by<F, T>(&self, find: F) -> key::KeyLookup
    where
        F: Fn(Lookup) -> T + Send + Sync + 'static,
        T: Future<Output = Result<Extracted, &'static str>> + Send + 'static,
    {
        let directory = self.clone();
        key::lookup(key::header("x-token"), move |token| {
            directory.count();
            find(token)
        })
    }
}

/// Counts by the token, with the quotas of a lookup.
pub(crate) fn tiered(lookup: TierLookup) -> Policy {
    Policy::new("token", MANY).key(key::header("x-token")).tier_lookup(lookup)
}

/// Counts by a key.
pub(crate) fn by(key: impl KeyExtractor) -> Policy {
    Policy::new("account", MANY).key(key)
}

pub(crate) fn memory() -> MemoryStore {
    time::memory(&ManualClock::new())
}

/// A store under test, which records what it is asked.
pub(crate) struct Rig {
    pub(crate) name: &'static str,
    pub(crate) store: RecordingStore<Box<dyn Store>>,
    _server: Option<RedisServer>,
}

impl Rig {
    pub(crate) fn memory() -> Self {
        Self::of("memory", memory(), None)
    }

    pub(crate) async fn redis() -> Self {
        let server = RedisServer::start();
        let settings = RedisStore::builder().clock(ManualClock::new()).timeout(Duration::from_secs(10));
        let store = settings.connect(&server.url()).await.expect("the server was started");
        Self::of("Redis", store, Some(server))
    }

    fn of(name: &'static str, store: impl Store, server: Option<RedisServer>) -> Self {
        Self { name, store: RecordingStore::new(Box::new(store)), _server: server }
    }

    /// How often the store decided, and how often it looked.
    pub(crate) fn asked(&self) -> (usize, usize) {
        let (mut decided, mut looked) = (0, 0);
        for call in self.store.recorded() {
            let Recorded::Decide(checks) = call else { continue };
            let looks = checks.iter().all(|check| check.cost == 0);
            *if looks { &mut looked } else { &mut decided } += 1;
        }
        (decided, looked)
    }

    pub(crate) fn layer(&self, policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
        RateLimitLayer::composite(self.store.clone()).policies(policies).timeout(Duration::from_secs(10))
    }
}

/// Runs a test on each kind of store.
pub(crate) async fn on_each_store(test: impl AsyncFn(&Rig)) {
    test(&Rig::memory()).await;
    test(&Rig::redis().await).await;
}

/// A request with a token, from one address.
pub(crate) fn with_token(token: &str) -> Request<Text> {
    let mut request = Request::new(Text::default());
    request.headers_mut().insert("x-token", HeaderValue::from_str(token).expect("a header value"));
    let peer = SocketAddr::from(([192, 0, 2, 7], 4711));
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

/// The response to a request, of a service that greets.
pub(crate) async fn send(layer: &RateLimitLayer, request: Request<Text>) -> Answered {
    let greet = service_fn(async |_| Ok::<_, Infallible>(Response::new(Text::from("hello"))));
    let response = layer.clone().expose_decisions().layer(greet).oneshot(request);
    let response = tokio::time::timeout(Duration::from_secs(3_600), response).await.expect("an answer in an hour");
    response.expect("the service does not fail")
}

pub(crate) async fn status(layer: &RateLimitLayer, token: &str) -> StatusCode {
    send(layer, with_token(token)).await.status()
}

/// A header of the response to a token's request.
pub(crate) async fn told(layer: &RateLimitLayer, token: &str, header: &str) -> String {
    let response = send(layer, with_token(token)).await;
    let value = response.headers().get(header).unwrap_or_else(|| panic!("no {header}: {}", response.status()));
    value.to_str().expect("ASCII").to_owned()
}
