//! Server time of decisions that share calls.

use tollgate::RedisStore;
use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;

use super::flood::{FLOOD, Flood, Kind};
use crate::effort::Effort;
use crate::server::{SCRIPTS, Server};
use crate::stores::store_of_batches;
use crate::table::{Figure, median_of, print, print_figures};

/// The most keys of a batch.
const SIZES: [usize; 4] = [8, 32, 64, 128];

/// A kind of decision in batches of one size.
struct Side {
    kind: Kind,
    size: usize,
    store: RedisStore,
    rounds: Rounds,
}

/// What one decision took, and how many a call had, by round.
#[derive(Default)]
struct Rounds {
    /// Of all calls together.
    micros: Vec<f64>,
    /// Of the median call, which hides that other work kept the server from its processor.
    median: Vec<f64>,
    a_call: Vec<f64>,
}

/// Prints all.
pub(super) async fn run(effort: Effort, server: &Server, connection: &mut MultiplexedConnection) {
    println!(
        "Server time of one decision in a full batch, over one plain GCRA script in a call of its own (median of \
         {} rounds of {FLOOD} decisions asked for at once, interleaved; {} keys drawn uniformly):\n",
        rounds(effort),
        effort.keys
    );
    let mut sides = Vec::new();
    for kind in Kind::ALL {
        for size in SIZES {
            sides.push(Side::new(kind, size, server).await);
        }
    }
    let plain = measure(effort, server, connection, &mut sides).await;
    print_all(&plain, &sides);
}

/// Of one policy that admits, in batches of 64.
pub(super) async fn figure(effort: Effort, server: &Server, connection: &mut MultiplexedConnection) -> Figure {
    eprintln!("server time of decisions");
    let mut sides = [Side::new(Kind::Allowed, 64, server).await];
    let plain = measure(effort, server, connection, &mut sides).await;
    sides[0].ratio(&plain, |rounds| &rounds.median)
}

fn rounds(effort: Effort) -> usize {
    3 * effort.rounds
}

/// Adds all rounds to the sides; returns those of the plain script.
async fn measure(
    effort: Effort,
    server: &Server,
    connection: &mut MultiplexedConnection,
    sides: &mut [Side],
) -> Rounds {
    let flood = Flood::new(effort.keys, server.connection().await);
    for kind in Kind::ALL {
        if let Some(side) = sides.iter().rfind(|side| side.kind == kind) {
            flood.warm(&side.store, kind).await;
        }
    }
    flood.warm_plain(connection).await;
    let mut plain = Rounds::default();
    for round in 0..rounds(effort) {
        server.reset_stats(connection).await;
        flood.plain(connection, round).await;
        plain.take(server, connection, 1).await;
        for side in &mut *sides {
            server.reset_stats(connection).await;
            flood.decide(&side.store, side.kind, round).await;
            side.rounds.take(server, connection, side.full()).await;
            side.test_batches();
        }
    }
    server.flush(connection).await;
    plain
}

impl Rounds {
    async fn take(&mut self, server: &Server, connection: &mut MultiplexedConnection, full: usize) {
        let (calls, micros) = server.command_stats(connection, &SCRIPTS).await;
        self.micros.push(micros / FLOOD as f64);
        self.a_call.push(FLOOD as f64 / calls);
        self.median.push(server.median_call(connection, &SCRIPTS).await / full as f64);
    }

    fn row(&self, name: String) -> Vec<String> {
        let [a_call, micros, median] =
            [&self.a_call, &self.micros, &self.median].map(|values| median_of(values.iter().copied()));
        vec![name, format!("{a_call:.1}"), format!("{micros:.2}"), format!("{median:.2}")]
    }
}

impl Side {
    async fn new(kind: Kind, size: usize, server: &Server) -> Self {
        Self { kind, size, store: store_of_batches(server, size).await, rounds: Rounds::default() }
    }

    fn name(&self) -> String {
        format!("{}, batches of {} keys", self.kind.name(), self.size)
    }

    /// Decisions of a call that is full.
    fn full(&self) -> usize {
        self.size / self.kind.policies().len()
    }

    /// Ends the run if batches were not as full as their name says.
    fn test_batches(&self) {
        let found = *self.rounds.a_call.last().expect("a round was measured");
        let share = found / self.full() as f64;
        // The first calls of a flood are smaller.
        assert!((0.85..=1.0).contains(&share), "{}: {found:.1} decisions a call", self.name());
    }

    fn ratio(&self, plain: &Rounds, of: impl Fn(&Rounds) -> &[f64]) -> Figure {
        let ratios = of(&self.rounds).iter().zip(of(plain)).map(|(ours, plain)| ours / plain).collect();
        Figure::new(format!("server time of a decision, {}", self.name()), ratios, None)
    }
}

fn print_all(plain: &Rounds, sides: &[Side]) {
    let mut rows = vec![plain.row("plain GCRA script".to_owned())];
    rows.extend(sides.iter().map(|side| side.rounds.row(side.name())));
    print(&["side", "decisions a call", "server µs a decision", "in the median call"], &rows);
    println!("By all calls:\n");
    print_figures(&sides.iter().map(|side| side.ratio(plain, |rounds| &rounds.micros)).collect::<Vec<_>>());
    println!("By the median call, which other work on the machine does not touch:\n");
    print_figures(&sides.iter().map(|side| side.ratio(plain, |rounds| &rounds.median)).collect::<Vec<_>>());
}
