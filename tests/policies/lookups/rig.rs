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
use tollgate::key::{self, Extracted, KeyExtractor};
use tollgate::store::{Answer, Check, Deadline, Decided, Store};
use tollgate::{Error, Key, Lookup, MemoryStore, Policy, Quota, RateLimitLayer, RedisStore, ResponseBody, TierLookup};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::clock::ManualClock;
use crate::support::doubles::passes_on;
use crate::support::server::RedisServer;

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
    pub(crate) fn accounts(&self, after: Duration) -> key::KeyLookup<key::Header> {
        self.accounts_by(move |token| async move {
            sleep(after).await;
            Ok(Extracted::Key(Key::new("account", token.text().expect("a token"))))
        })
    }

    pub(crate) fn accounts_by<F, T>(&self, find: F) -> key::KeyLookup<key::Header>
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
    MemoryStore::builder().with_clock(ManualClock::new().reader()).build()
}

/// A store under test, which counts what it is asked.
pub(crate) struct Rig {
    pub(crate) name: &'static str,
    pub(crate) store: Arc<Counting>,
    _server: Option<RedisServer>,
}

impl Rig {
    pub(crate) fn memory() -> Self {
        Self { name: "memory", store: Counting::new(memory()), _server: None }
    }

    pub(crate) async fn redis() -> Self {
        let server = RedisServer::start();
        let settings = RedisStore::builder().with_clock(ManualClock::new().reader()).budget(Duration::from_secs(10));
        let store = settings.connect(&server.url()).await.expect("the server was started");
        Self { name: "Redis", store: Counting::new(store), _server: Some(server) }
    }

    pub(crate) fn layer(&self, policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
        RateLimitLayer::composite(Arc::clone(&self.store)).policies(policies).budget(Duration::from_secs(10))
    }
}

/// Runs a test on each kind of store.
pub(crate) async fn on_each_store(test: impl AsyncFn(&Rig)) {
    test(&Rig::memory()).await;
    test(&Rig::redis().await).await;
}

/// Counts the decisions and looks that a store is asked for.
pub(crate) struct Counting {
    inner: Box<dyn Store>,
    decided: AtomicUsize,
    looked: AtomicUsize,
}

impl Counting {
    pub(crate) fn new(inner: impl Store) -> Arc<Self> {
        Arc::new(Self { inner: Box::new(inner), decided: AtomicUsize::new(0), looked: AtomicUsize::new(0) })
    }

    /// How often it decided, and how often it looked.
    pub(crate) fn asked(&self) -> (usize, usize) {
        (self.decided.load(Ordering::SeqCst), self.looked.load(Ordering::SeqCst))
    }
}

impl Store for Counting {
    fn decide(&self, checks: &[Check], deadline: Deadline) -> Answer<Result<Decided, Error>> {
        let looks = checks.iter().all(|check| check.cost == 0);
        if looks { &self.looked } else { &self.decided }.fetch_add(1, Ordering::SeqCst);
        self.inner.decide(checks, deadline)
    }

    fn recall(&self, checks: &[Check]) -> Option<Decided> {
        self.inner.recall(checks)
    }

    passes_on!(inner: settle, adjust, reset);
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
    let response = layer.layer(greet).oneshot(request);
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
