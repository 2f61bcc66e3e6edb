//! How the cost of a request grows with the policies of a layer, in memory.

use std::net::SocketAddr;
use std::time::Duration;

use tollgate::{MemoryStore, Policy, Quota, RateLimitHeaders, RateLimitLayer, key};
use tower::Layer;

use super::report::{Table, Unit};
use crate::effort::Effort;
use crate::memory::layer::check::exactly;
use crate::memory::layer::service::{Boxed, Inner, boxed};
use crate::memory::layer::{ALONE, call, clients, nanos};
#[cfg(feature = "peers")]
use crate::versions::titled;
use crate::work::{Answers, BOTH};

pub(super) const POLICIES: [usize; 5] = [1, 2, 4, 8, 16];

const CLIENTS: usize = 10_000;

/// Refuses nothing, and refills so slowly that every key stays in use.
const BURST: u64 = 30_000_000;
const PER_HOUR: u64 = 1_000;

const PLAIN: &str = "tollgate without headers";
const HEADERS: &str = "tollgate with both header sets";
#[cfg(feature = "peers")]
const PEER: &str = "tower_governor in layers";

/// Layers of so many policies: one of each side.
type Sides = Vec<(Boxed, Answers)>;

pub(super) fn run(Effort { rounds, calls, .. }: Effort) -> Table {
    let requests = calls * 100;
    let mut table = table(rounds, requests);
    let clients = clients(CLIENTS);
    let mut rows: Vec<Sides> = POLICIES.iter().map(|&policies| sides(policies)).collect();
    for (service, _) in rows.iter_mut().flatten() {
        // Every client has its counters.
        for client in &clients {
            drop(call(service, client));
        }
    }
    let (mut alone, mut taken) = (f64::INFINITY, Vec::new());
    for _ in 0..rounds {
        alone = alone.min(nanos(&mut boxed(Inner), ALONE, &clients, requests));
        for (row, sides) in rows.iter_mut().enumerate() {
            for (side, (service, answers)) in sides.iter_mut().enumerate() {
                taken.push((side, row, nanos(service, *answers, &clients, requests)));
            }
        }
    }
    for (side, row, nanos) in taken {
        table.note(side, row, nanos - alone);
    }
    table
}

fn table(rounds: usize, requests: usize) -> Table {
    let work = format!(
        "One unit of work is a request through one layer in process, without sockets, admitted by each policy's token \
         bucket of its client in memory; the least time of the inner service alone is subtracted (medians of \
         {rounds} rounds of {requests} requests, interleaved; {CLIENTS} clients, uniform; one thread). tower_governor has one policy a \
         layer, so it is one layer for each, without headers."
    );
    let table = Table::of("policies_memory", "policies", Unit::Nanoseconds, &POLICIES, work);
    #[cfg(feature = "peers")]
    return table.beside(&titled(PEER)).side(PLAIN, Some(&titled(PEER))).side(HEADERS, None);
    #[cfg(not(feature = "peers"))]
    table.side(PLAIN, None).side(HEADERS, None)
}

fn sides(policies: usize) -> Sides {
    let plain = boxed(layer(policies).headers(RateLimitHeaders::none()).layer(Inner));
    let mut full = boxed(layer(policies).layer(Inner));
    let [one, another] = [1, 2].map(|last| SocketAddr::from(([10, 255, 255, last], 40_000)));
    let response = call(&mut full, &one);
    let members = response.headers()["ratelimit-policy"].to_str().expect("it is text").split(", ").count();
    assert_eq!(members, policies, "each policy is counted: {:?}", response.headers());
    let ours = [(plain, ALONE), (full, Answers::admitted(BOTH))];
    #[cfg(feature = "peers")]
    return [(peer::stacked(policies), ALONE)].into_iter().chain(ours).map(|side| tested(side, another)).collect();
    #[cfg(not(feature = "peers"))]
    ours.into_iter().map(|side| tested(side, another)).collect()
}

/// Ends the run if the first response is not what is expected of a side.
fn tested((mut service, answers): (Boxed, Answers), client: SocketAddr) -> (Boxed, Answers) {
    exactly(answers, &call(&mut service, &client)).expect("equal work");
    (service, answers)
}

fn layer(policies: usize) -> RateLimitLayer {
    // Each window is another one, as those of a real layer are.
    let window = |number: u32| Duration::from_secs(3_600) * (number + 1);
    let quota = |number| Quota::token_bucket(PER_HOUR, window(number)).burst(BURST);
    let policy = |number| Policy::new(&format!("policy-{number}"), quota(number)).key(key::client_ip());
    let empty = RateLimitLayer::composite(MemoryStore::new());
    (0..u32::try_from(policies).expect("few policies")).fold(empty, |layer, number| layer.policy(policy(number)))
}

#[cfg(feature = "peers")]
mod peer {
    //! `tower_governor`, once for each policy.

    use std::time::Duration;

    use axum::body::Body;
    use governor::middleware::NoOpMiddleware;
    use tower::Layer;
    use tower_governor::GovernorLayer;
    use tower_governor::governor::{Governor, GovernorConfigBuilder};
    use tower_governor::key_extractor::PeerIpKeyExtractor;

    use super::{BURST, Boxed, Inner, PER_HOUR, boxed};

    type One<S> = Governor<PeerIpKeyExtractor, NoOpMiddleware, S, Body>;
    type Two<S> = One<One<S>>;
    type Four<S> = Two<Two<S>>;
    type Eight<S> = Four<Four<S>>;

    pub(super) fn stacked(policies: usize) -> Boxed {
        match policies {
            1 => boxed(one(Inner)),
            2 => boxed(two(Inner)),
            4 => boxed(four(Inner)),
            8 => boxed(eight(Inner)),
            16 => boxed(eight(eight(Inner))),
            _ => unreachable!("no row has {policies} policies"),
        }
    }

    fn one<S>(inner: S) -> One<S> {
        let mut config = GovernorConfigBuilder::default();
        let per_hour = u32::try_from(PER_HOUR).expect("few units");
        config.period(Duration::from_secs(3_600) / per_hour).burst_size(u32::try_from(BURST).expect("few units"));
        GovernorLayer::new(config.finish().expect("neither is 0")).layer(inner)
    }

    fn two<S>(inner: S) -> Two<S> {
        one(one(inner))
    }

    fn four<S>(inner: S) -> Four<S> {
        two(two(inner))
    }

    fn eight<S>(inner: S) -> Eight<S> {
        four(four(inner))
    }
}
