//! Applications behind layers of one request an hour, which remember whom they served.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use http::request::Parts;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tollgate::key::KeyExtractor;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};
use tower::ServiceExt;

use crate::one_client::check::{App, Kind, PROXY, handlers, kinds};

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(kinds);

/// The header that says which application is asked.
pub(super) const VARIANT: &str = "x-variant";

/// A server of all applications, each with each key that fits it.
pub(super) struct Server {
    pub(super) port: u16,
    served: Arc<Mutex<Served>>,
}

/// Who was served, by application.
#[derive(Default)]
struct Served {
    /// How often, under a counter of their own.
    clients: HashMap<(usize, String), usize>,
    /// How often under the shared one.
    shared: HashMap<usize, usize>,
    fault: Option<String>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let served = Arc::<Mutex<Served>>::default();
        let variants = variants().enumerate().map(|(number, (kind, app, key))| {
            let served = served.clone();
            let entry = key.clone();
            let answer = move |parts: Parts| {
                served.lock().expect("no test panics here").enter(number, (kind, app), &*entry, &parts);
                Response::default()
            };
            let policy = Policy::new("policy", Quota::per_hour(1)).key(key);
            handlers(answer).layer(RateLimitLayer::new(MemoryStore::new(), policy))
        });
        let variants = Arc::<[Router]>::from(variants.collect::<Vec<_>>());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        tokio::spawn(accept(listener, variants));
        Self { port, served }
    }

    /// The kinds of keys, and the numbers of the applications that read them.
    pub(super) fn kinds() -> impl Iterator<Item = (&'static Kind, Range<usize>)> {
        let mut start = 0;
        KINDS.iter().map(move |kind| {
            let end = start + kind.apps.iter().map(|app| app.keys.len()).sum::<usize>();
            (kind, std::mem::replace(&mut start, end)..end)
        })
    }

    #[track_caller]
    pub(super) fn check(&self, request: impl FnOnce() -> String) {
        let fault = self.served.lock().expect("no test panics here").fault.take();
        if let Some(fault) = fault {
            panic!("{}: {fault}", request());
        }
    }
}

impl Served {
    fn enter(&mut self, number: usize, (kind, app): (&Kind, &App), key: &dyn KeyExtractor, parts: &Parts) {
        let Some(client) = (app.sees)(parts) else { return };
        let times = match kind.key(key, parts) {
            Ok(Some(_)) => self.clients.entry((number, client.clone())).or_default(),
            Ok(None) => self.shared.entry(number).or_default(),
            Err(other) => {
                self.fault = Some(format!("{client:?} to {} is not counted: {other}", app.name));
                return;
            }
        };
        *times += 1;
        if *times > 1 {
            self.fault = Some(format!("{}, served again, is {client:?} to {}: {parts:?}", kind.name, app.name));
        }
    }
}

fn variants() -> impl Iterator<Item = (&'static Kind, &'static App, Arc<dyn KeyExtractor>)> {
    KINDS
        .iter()
        .flat_map(|kind| kind.apps.iter().flat_map(move |app| app.keys.iter().map(move |key| (kind, app, key.clone()))))
}

async fn accept(listener: TcpListener, variants: Arc<[Router]>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let variants = variants.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let router = variant(&request).and_then(|number| variants.get(number).cloned());
            async move { Ok::<_, Infallible>(answer(router, request).await) }
        });
        tokio::spawn(async move {
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn variant<B>(request: &Request<B>) -> Option<usize> {
    request.headers().get(VARIANT)?.to_str().ok()?.parse().ok()
}

/// All come from one proxy.
async fn answer(router: Option<Router>, request: Request<Incoming>) -> Response {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((PROXY, 4711))));
    if let Some(router) = router {
        return router.oneshot(request).await.expect("it never fails");
    }
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}
