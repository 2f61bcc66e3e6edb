//! What a layer costs a request, in process and without sockets.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::Empty;
use tollgate::shed::{FleetShedLayer, WorkerShedLayer};
use tollgate::{Headers, MemoryStore, Quota, RateLimitLayer, key};
use tower::{Layer, Service};

use super::sides::{Keys, address};
use crate::table::{median, print};

const KEYS: usize = 100_000;
const CLIENT: HeaderName = HeaderName::from_static("x-client");
const LIMIT: u64 = 30_000_000;
/// Refuses nothing, and refills so slowly that every key stays in use.
const AMPLE: Quota = Quota::per_hour(1_000).burst(LIMIT);

/// A service that does nothing.
#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        black_box(&request);
        ready(Ok(Response::new(Empty::new())))
    }
}

pub(super) fn run(rounds: usize, requests: usize) {
    println!(
        "What a layer with a memory store adds to a request: nanoseconds over the inner service alone (medians of \
         {rounds} rounds, interleaved; {KEYS} keys, uniform, one thread, no sockets).\n"
    );
    let clients: Vec<HeaderValue> =
        (0..KEYS).map(|key| HeaderValue::try_from(address(key)).expect("digits and dots")).collect();
    let client = || key::header("x-client").plain();
    let one = |quota| RateLimitLayer::composite(MemoryStore::new()).user(quota, client());
    let longer = Quota::token_bucket(1_000, Duration::from_secs(7_200)).burst(LIMIT);
    let three = one(AMPLE).policy(tollgate::Policy::new("longer", longer).key(client()));
    let layers = [
        ("one policy, both header sets", one(AMPLE)),
        ("one policy, no headers", one(AMPLE).headers(Headers::none())),
        ("one policy, refused", one(Quota::per_hour(1))),
        ("three policies, both header sets", three.global(Quota::per_second(LIMIT))),
    ];
    let mut sides: Vec<Side<'_>> = layers.into_iter().map(|(name, layer)| side(name, layer.layer(Inner))).collect();
    let many = NonZeroU32::new(1_000).expect("it is not zero");
    sides.push(side("worker shedder", WorkerShedLayer::new("worker", many).layer(Inner)));
    sides.push(side("worker shedder, measured", WorkerShedLayer::measured("worker", || 0.5).layer(Inner)));
    let fleet = FleetShedLayer::new(MemoryStore::new(), "fleet", Quota::concurrency(1_000), 0.2);
    sides.push(side("fleet shedder, memory", fleet.layer(Inner)));
    for _ in 0..rounds {
        let alone = nanos(&mut Inner, &clients, requests);
        for (_, nanos, added) in &mut sides {
            added.push(nanos(&clients, requests) - alone);
        }
    }
    let rows: Vec<_> =
        sides.into_iter().map(|(name, _, ns)| vec![name.to_owned(), format!("{:.0}", median(ns))]).collect();
    print(&["layer", "ns per request"], &rows);
}

/// A row: what it is, what a request takes, and what that was more than without the layer, in each round.
type Side<'a> = (&'a str, Box<dyn FnMut(&[HeaderValue], usize) -> f64>, Vec<f64>);

fn side<S: Service<Request<()>> + 'static>(name: &str, mut service: S) -> Side<'_> {
    (name, Box::new(move |clients, requests| nanos(&mut service, clients, requests)), Vec::new())
}

fn nanos<S: Service<Request<()>>>(service: &mut S, clients: &[HeaderValue], requests: usize) -> f64 {
    let (mut keys, mut cx) = (Keys::new(0), Context::from_waker(Waker::noop()));
    let begun = Instant::now();
    for _ in 0..requests {
        let mut request = Request::new(());
        request.headers_mut().insert(CLIENT, clients[keys.next(clients.len())].clone());
        assert!(service.poll_ready(&mut cx).is_ready());
        let answer = pin!(service.call(request)).poll(&mut cx);
        assert!(matches!(black_box(answer), Poll::Ready(Ok(_))));
    }
    begun.elapsed().as_nanos() as f64 / requests as f64
}
