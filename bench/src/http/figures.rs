//! What has a target, of requests/s and of the work of a server, beside other crates.

use super::options::Options;
use super::pass::{self, Rounds, Runner};
use super::{sides, wrk};
use crate::table::{Figure, Target};

const SIDES: &str = "none,headers,memory,memory-bare-no-handle,redis,redis-bare-no-handle,flood,leases,tower_governor,\
                     tower_governor-headers,tower-rate-limit-redis,tower-redis-cell";

/// Crates that limit in Redis, and work as [`BARE`] does.
const PEERS: [&str; 2] = ["tower-redis-cell", "tower-rate-limit-redis"];

/// With neither headers nor a handle, as they have none.
const BARE: &str = "redis-bare-no-handle";

/// Connections, and the least and the best of requests/s over the best peer.
const CONNECTIONS: [(u32, f64, f64); 3] = [(1, 1.0, 1.08), (64, 1.12, 1.25), (256, 1.15, 1.3)];

/// The connections at which all else is measured.
const MOST: u32 = 64;

/// All rounds of all sides, over one number of connections.
struct Seen<'a>(&'a [Rounds<'a>]);

pub(super) fn of(options: &Options) -> Result<Vec<Figure>, String> {
    wrk::check_installed()?;
    let mut runners = Vec::new();
    for side in options.choose(sides::all())? {
        runners.push(Runner::start(side)?);
    }
    for runner in &mut runners {
        runner.warm_up(options)?;
    }
    let mut figures = Vec::new();
    for (connections, must, stretch) in CONNECTIONS {
        let rounds = pass::rounds(&mut runners, options, connections, options.rounds)?;
        let seen = Seen(&rounds);
        let name = format!("requests/s, Redis over the best peer, connections: {connections}");
        figures.push(Figure::new(name, seen.over_best_peer(BARE), Target::AtLeast { must, stretch }));
        if connections == MOST {
            figures.extend(seen.at_most_connections());
        }
    }
    Ok(figures)
}

/// The sides, as options for [`of`].
pub(super) fn options(quick: bool) -> Result<Options, String> {
    let quick = quick.then_some("--quick");
    Options::parse(["--redis-cell", "--sides", SIDES].into_iter().chain(quick).map(str::to_owned))
}

impl Seen<'_> {
    fn at_most_connections(&self) -> Vec<Figure> {
        let over = |name: &str, side, other, must, stretch| {
            Figure::new(format!("requests/s, {name}"), self.over(side, other), Target::AtLeast { must, stretch })
        };
        let calls = |name: &str, side, must, stretch| {
            let calls = self.rounds(side).calls().into_iter().collect();
            Figure::new(format!("Redis calls for 100 requests{name}"), calls, Target::AtMost { must, stretch })
        };
        let [cpu, of_peer] = [BARE, PEERS[0]].map(|side| self.rounds(side).cpu());
        let cpu = cpu.zip(of_peer).map(|(cpu, of_peer)| cpu / of_peer).into_iter().collect();
        let headers = Target::AtLeast { must: 1.0, stretch: 1.08 };
        vec![
            Figure::new("requests/s, Redis and all headers over the best peer", self.over_best_peer("redis"), headers),
            Figure::new(
                "processor time, Redis over tower-redis-cell",
                cpu,
                Target::AtMost { must: 0.85, stretch: 0.75 },
            ),
            calls("", "redis", 10.0, 8.0),
            calls(", flood", "flood", 1.0, 0.2),
            calls(", leases", "leases", 1.0, 0.2),
            over("memory over tower_governor", "memory-bare-no-handle", "tower_governor", 1.0, 1.05),
            over(
                "memory and all headers over tower_governor and its two",
                "memory",
                "tower_governor-headers",
                0.97,
                1.0,
            ),
            over("flood over no limit and five constant headers", "flood", "headers", 0.92, 0.97),
            over("leases over no limit and five constant headers", "leases", "headers", 0.90, 0.95),
        ]
    }

    fn rounds(&self, side: &str) -> &Rounds<'_> {
        self.0.iter().find(|rounds| rounds.side.name == side).expect("it was chosen")
    }

    fn over(&self, side: &str, other: &str) -> Vec<f64> {
        self.rounds(side).over(self.rounds(other))
    }

    /// Over the better of the peers in each round.
    fn over_best_peer(&self, side: &str) -> Vec<f64> {
        let [first, second] = PEERS.map(|peer| self.over(side, peer));
        first.into_iter().zip(second).map(|(first, second)| first.min(second)).collect()
    }
}
