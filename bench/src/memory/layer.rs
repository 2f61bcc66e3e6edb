//! What a layer costs a request, in process and without sockets, beside `tower_governor`'s.
//!
//! Each side wraps the same service, and gets the same requests: of [`KEYS`] clients, drawn uniformly, by the address of
//! their peer. A side is admitted always or refused always, and every response is looked at: a side that did less than
//! it is measured for ends the program.

mod program;
pub(crate) mod service;
pub(crate) mod sides;

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use axum::extract::ConnectInfo;
use http::{Request, Response};

use self::program::Program;
use self::service::{Boxed, Inner, boxed};
use self::sides::{Expected, Side};
use super::sides::Keys;
use crate::table::{Figure, Target, median, print, print_figures};

const KEYS: usize = 100_000;

/// The side of ours that does what `tower-rate-limiter` does.
const FIXED: &str = "one policy, fixed window, IETF headers";
const PROGRAM: &str = "tower-rate-limiter 0.1, fixed window, IETF headers";

/// Measures all sides, in this process; with a program also that, which does nothing while others are measured. Prints
/// all, and returns the ratios that have a target.
pub(super) fn run(rounds: usize, requests: usize, with_program: bool) -> Vec<Figure> {
    assert!(env::var_os("RUST_BACKTRACE").is_none(), "unset RUST_BACKTRACE: errors of other crates would cost more");
    println!(
        "What a layer adds to a request, with counters in memory: nanoseconds over the inner service alone (medians of \
         {rounds} rounds, interleaved; one thread, no sockets). Clients are {KEYS} addresses of peers, uniform, each \
         with a bucket of its own; every request is admitted, or every one refused, and each response is looked at.\n"
    );
    let clients = clients(KEYS);
    let mut sides = sides::all();
    for side in &mut sides {
        // Every client has its counter, and a refused one has used it up.
        for client in &clients {
            call(&mut side.service, client);
        }
    }
    let mut program = with_program.then(|| Program::tower_rate_limiter(KEYS));
    let mut nanos_of = vec![Vec::new(); sides.len()];
    let mut theirs = Vec::new();
    for _ in 0..rounds {
        theirs.extend(program.as_mut().map(|program| program.nanos(requests)));
        let alone = nanos(&mut boxed(Inner), Expected::Nothing, &clients, requests);
        for (side, nanos_of) in sides.iter_mut().zip(&mut nanos_of) {
            nanos_of.push(nanos(&mut side.service, side.expected, &clients, requests) - alone);
        }
    }
    let row = |name: &str, nanos: &[f64]| vec![name.to_owned(), format!("{:.0}", median(nanos.to_vec()))];
    let mut rows: Vec<_> = sides.iter().zip(&nanos_of).map(|(side, nanos)| row(side.name, nanos)).collect();
    let mut ratios = ratios(&sides, &nanos_of);
    if let Some(place) = sides.iter().position(|side| side.name == FIXED)
        && !theirs.is_empty()
    {
        ratios.push(ratio((FIXED, &nanos_of[place]), (PROGRAM, &theirs), None));
        rows.push(row(PROGRAM, &theirs));
    }
    print(&["layer", "ns per request"], &rows);
    print_figures(&ratios);
    ratios.retain(|ratio| ratio.target.is_some());
    ratios
}

/// Sends requests to one side only, for a profiler.
pub(super) fn profile(name: &str, requests: usize) {
    let clients = clients(KEYS);
    let Some(mut side) = sides::all().into_iter().find(|side| side.name == name) else {
        for side in sides::all() {
            println!("{}", side.name);
        }
        return;
    };
    for client in &clients {
        call(&mut side.service, client);
    }
    let nanos = nanos(&mut side.service, side.expected, &clients, requests);
    println!("{name}: {nanos:.0} ns a request, the request itself included");
}

fn ratios(sides: &[Side], nanos_of: &[Vec<f64>]) -> Vec<Figure> {
    let each = sides.iter().zip(nanos_of);
    each.filter_map(|(side, nanos)| {
        let (name, target) = side.beside?;
        let place = sides.iter().position(|other| other.name == name)?;
        Some(ratio((side.name, nanos), (name, &nanos_of[place]), Some(target)))
    })
    .collect()
}

fn ratio((name, nanos): (&str, &[f64]), (other, others): (&str, &[f64]), target: Option<Target>) -> Figure {
    let rounds = nanos.iter().zip(others).map(|(nanos, others)| nanos / others).collect();
    Figure::new(format!("in process: {name}, over {other}"), rounds, target)
}

/// Returns the peers that send the requests.
pub(crate) fn clients(count: usize) -> Vec<SocketAddr> {
    let address = |key: usize| Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(key).expect("few keys"));
    (0..count).map(|key| (address(key), 40_000).into()).collect()
}

pub(crate) fn nanos(service: &mut Boxed, expected: Expected, clients: &[SocketAddr], requests: usize) -> f64 {
    let mut keys = Keys::new(0);
    let begun = Instant::now();
    for _ in 0..requests {
        let response = call(service, &clients[keys.next(clients.len())]);
        assert!(expected.is_met(&response), "unequal work: {:?}", response.headers());
    }
    begun.elapsed().as_nanos() as f64 / requests as f64
}

pub(crate) fn call(service: &mut Boxed, client: &SocketAddr) -> Response<()> {
    let mut request = Request::new(String::new());
    request.extensions_mut().insert(ConnectInfo(*client));
    service(request)
}
