//! What a layer costs a request, in process and without sockets, beside `tower_governor`'s.
//!
//! Each side wraps the same service, and gets the same requests: of [`KEYS`] clients, drawn uniformly, by the address of
//! their peer. A side is admitted always or refused always, and every response is looked at: a side that does
//! other work than it is measured for ends the program.

pub(crate) mod check;
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
use self::sides::Side;
use super::sides::Keys;
use crate::table::{Figure, median, print, print_figures};
use crate::versions::titled;
use crate::work::{Answers, NO_HEADERS, compare};

const KEYS: usize = 100_000;

/// The side of ours that does what `tower-rate-limiter` does.
const FIXED: &str = "one policy, fixed window, IETF headers";
const PROGRAM: &str = "tower-rate-limiter, fixed window, IETF headers";

/// What the service alone answers.
pub(crate) const ALONE: Answers = Answers::admitted(NO_HEADERS);

/// Measures all sides, in this process; with a program also that, which does nothing while others are measured.
pub(super) fn run(rounds: usize, requests: usize, with_program: bool) -> Result<(), String> {
    println!(
        "What a layer adds to a request, with counters in memory: nanoseconds over the inner service alone (medians of \
         {rounds} rounds, interleaved; one thread, no sockets). Clients are {KEYS} addresses of peers, uniform, each \
         with a bucket of its own; every request is admitted, or every one refused, and each response is looked at.\n"
    );
    let mut sides = sides::all();
    let beside = sides.iter().filter(|side| side.beside.is_some()).map(|side| side.name);
    // Without other crates, some have nothing beside them.
    let pairs: Vec<_> = beside.filter_map(|name| Pair::of(name, &sides).transpose()).collect::<Result<_, _>>()?;
    let mut program = with_program.then(|| Program::tower_rate_limiter(KEYS));
    let (nanos_of, theirs) = measure(&mut sides, program.as_mut(), rounds, requests)?;
    let row = |name: String, nanos: &[f64]| vec![name, format!("{:.0}", median(nanos.to_vec()))];
    let mut rows: Vec<_> = sides.iter().zip(&nanos_of).map(|(side, nanos)| row(side.title(), nanos)).collect();
    let mut figures: Vec<_> = pairs.iter().map(|pair| pair.figure(&nanos_of)).collect();
    if let Some(place) = sides.iter().position(|side| side.name == FIXED)
        && !theirs.is_empty()
    {
        let (name, rounds) = (format!("in process: {FIXED}, over {PROGRAM}"), ratios(&nanos_of[place], &theirs));
        figures.push(Figure::new(name, rounds, None));
        rows.push(row(titled(PROGRAM), &theirs));
    }
    print(&["layer", "ns per request"], &rows);
    print_figures(&figures);
    Ok(())
}

/// Measures some sides and what they are compared with.
pub(super) fn figures(names: &[&str], rounds: usize, requests: usize) -> Result<Vec<Figure>, String> {
    eprintln!("layers in process");
    let mut sides = sides::all();
    let others: Vec<_> =
        sides.iter().filter(|side| names.contains(&side.name)).filter_map(|side| side.beside).collect();
    sides.retain(|side| names.contains(&side.name) || others.iter().any(|other| other.name == side.name));
    let pair = |name: &&str| Pair::of(name, &sides)?.ok_or_else(|| format!("{name} needs `--features peers`"));
    let pairs: Vec<_> = names.iter().map(pair).collect::<Result<_, _>>()?;
    let (nanos_of, _) = measure(&mut sides, None, rounds, requests)?;
    Ok(pairs.iter().map(|pair| pair.figure(&nanos_of)).collect())
}

/// Nanoseconds that each side adds, and the program, round by round.
fn measure(
    sides: &mut [Side],
    mut program: Option<&mut Program>,
    rounds: usize,
    requests: usize,
) -> Result<(Vec<Vec<f64>>, Vec<f64>), String> {
    assert!(env::var_os("RUST_BACKTRACE").is_none(), "unset RUST_BACKTRACE: errors of other crates would cost more");
    let clients = clients(KEYS);
    for side in &mut *sides {
        check::work(side)?;
        // Every client has its counter, and a refused one has used it up.
        for client in &clients {
            call(&mut side.service, client);
        }
    }
    let (mut nanos_of, mut theirs) = (vec![Vec::new(); sides.len()], Vec::new());
    for _ in 0..rounds {
        theirs.extend(program.as_mut().map(|program| program.nanos(requests)));
        let alone = nanos(&mut boxed(Inner), ALONE, &clients, requests);
        for (side, nanos_of) in sides.iter_mut().zip(&mut nanos_of) {
            nanos_of.push(nanos(&mut side.service, side.answers, &clients, requests) - alone);
        }
    }
    Ok((nanos_of, theirs))
}

/// A side and what it is compared with, by their places.
struct Pair {
    name: String,
    ours: usize,
    theirs: usize,
    unequal: String,
}

impl Pair {
    /// Nothing if a side is not there.
    fn of(name: &str, sides: &[Side]) -> Result<Option<Self>, String> {
        let place = |name: &str| sides.iter().position(|side| side.name == name);
        let Some(ours) = place(name) else { return Ok(None) };
        let Some(beside) = sides[ours].beside else { return Ok(None) };
        let Some(theirs) = place(beside.name) else { return Ok(None) };
        let differences = sides[ours].answers.differences(sides[theirs].answers);
        let unequal = compare(name, beside.name, beside.is_equal, &differences)?;
        Ok(Some(Self { name: format!("in process: {name}, over {}", beside.name), ours, theirs, unequal }))
    }

    fn figure(&self, nanos_of: &[Vec<f64>]) -> Figure {
        let (name, rounds) = (self.name.clone(), ratios(&nanos_of[self.ours], &nanos_of[self.theirs]));
        Figure { name, rounds, unequal: self.unequal.clone(), ..Figure::default() }
    }
}

fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
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
    let nanos = nanos(&mut side.service, side.answers, &clients, requests);
    println!("{name}: {nanos:.0} ns a request, the request itself included");
}

/// Returns the peers that send the requests.
pub(crate) fn clients(count: usize) -> Vec<SocketAddr> {
    let address = |key: usize| Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(key).expect("few keys"));
    (0..count).map(|key| (address(key), 40_000).into()).collect()
}

/// Names of headers are not looked at here, which would cost as much as some layers do.
pub(crate) fn nanos(service: &mut Boxed, answers: Answers, clients: &[SocketAddr], requests: usize) -> f64 {
    let mut keys = Keys::new(0);
    let begun = Instant::now();
    for _ in 0..requests {
        let response = call(service, &clients[keys.next(clients.len())]);
        let (status, headers) = (response.status().as_u16(), response.headers().len());
        assert!(status == answers.status && headers == answers.headers.len(), "unequal work: {response:?}");
    }
    begun.elapsed().as_nanos() as f64 / requests as f64
}

pub(crate) fn call(service: &mut Boxed, client: &SocketAddr) -> Response<()> {
    let mut request = Request::new(String::new());
    request.extensions_mut().insert(ConnectInfo(*client));
    service(request)
}
