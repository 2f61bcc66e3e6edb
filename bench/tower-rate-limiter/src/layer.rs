//! What the layer costs a request, in process and with counters in memory.
//!
//! Takes a number of clients, lets each send a request, and prints `ready` and the headers of a response. For each line, a number of requests, it prints
//! how many nanoseconds the layer adds to one, and it ends with standard input. Requests are those of the benchmark
//! `memory`, and every response is looked at.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service};
use tower_rate_limiter::{IpKeyExtractor, MemoryStore, RateLimitLayer};

/// Refuses nothing.
const LIMIT: u64 = 30_000_000;

/// A service that does nothing.
#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        black_box(&request);
        ready(Ok(Response::new(Body::empty())))
    }
}

type Boxed = Box<dyn FnMut(Request<()>) -> Response<()>>;

fn boxed<S, B>(mut service: S) -> Boxed
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible> + 'static,
{
    Box::new(move |request| {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut cx).is_ready());
        let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut cx) else {
            unreachable!("counters in memory reply at once");
        };
        black_box(response).map(drop)
    })
}

pub(crate) fn run() {
    let mut numbers = std::env::args().skip(2).map(|number| number.parse::<u32>().expect("a number of clients"));
    let count = numbers.next().expect("a number of clients");
    let address = |client| Ipv4Addr::from_bits(0x0a00_0000 + client);
    let clients: Vec<SocketAddr> = (0..count).map(|client| (address(client), 40_000).into()).collect();
    let layer = RateLimitLayer::builder(IpKeyExtractor::new()).policy_name("ip").limit(LIMIT);
    let layer = layer.window(Duration::from_secs(3_600)).with_store(MemoryStore::new()).build().expect("a limit");
    let mut limited = boxed(layer.layer(Inner));
    for client in &clients {
        call(&mut limited, client);
    }
    let response = call(&mut limited, &clients[0]);
    let mut names: Vec<_> = response.headers().keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    println!("ready: {}", names.join(" "));
    for line in std::io::stdin().lines() {
        let requests = line.expect("it is text").trim().parse().expect("a number of requests");
        let alone = nanos(&mut boxed(Inner), 0, &clients, requests);
        println!("{}", nanos(&mut limited, names.len(), &clients, requests) - alone);
    }
}

fn nanos(service: &mut Boxed, headers: usize, clients: &[SocketAddr], requests: usize) -> f64 {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ 1 << 17;
    let begun = Instant::now();
    for _ in 0..requests {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let response = call(service, &clients[state as usize % clients.len()]);
        let is_equal = response.status() == StatusCode::OK && response.headers().len() == headers;
        assert!(is_equal, "unequal work: {response:?}");
    }
    begun.elapsed().as_nanos() as f64 / requests as f64
}

fn call(service: &mut Boxed, client: &SocketAddr) -> Response<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(ConnectInfo(*client));
    service(request)
}
