//! Rounds of all sides in turn, and whether each did what it should.

use std::net::SocketAddr;

use super::check;
use super::options::Options;
use super::process::Process;
use super::redis::Redis;
use super::requests::Client;
use super::sides::Side;
use super::wrk::{self, Load, Script};

/// Of the requests of a flood, the part that may be admitted.
const ADMITTED: f64 = 0.02;

/// A side that is up.
pub(crate) struct Runner {
    pub(crate) side: Side,
    pub(crate) address: SocketAddr,
    script: Script,
    process: Process,
    redis: Redis,
}

/// One round of one side.
pub(crate) struct Run {
    pub(crate) load: Load,
    /// Seconds of processor time of the server's process, for a request.
    pub(crate) cpu: f64,
    /// Calls to Redis for 100 requests.
    pub(super) calls: f64,
}

/// All rounds of one side.
pub(super) struct Rounds<'a> {
    pub(super) side: &'a Side,
    pub(super) runs: Vec<Run>,
}

impl Runner {
    /// Starts the sides, sees that each does its work, and loads them long enough that most keys are there, and what a
    /// flood may take is taken.
    pub(super) async fn start_all(sides: Vec<Side>, options: &Options) -> Result<Vec<Self>, String> {
        wrk::check_installed()?;
        let mut runners = Vec::new();
        for side in sides {
            let ((process, address, redis), script) =
                (check::started(&side).await?, Script::new(side.name, side.keys)?);
            let runner = Self { side, address, script, process, redis };
            runner.script.run(runner.address, options.connections, 2 * options.seconds)?;
            runner.probe()?;
            runners.push(runner);
        }
        Ok(runners)
    }

    pub(crate) async fn run(&mut self, options: &Options, connections: u32) -> Result<Run, String> {
        self.redis.take_calls().await;
        let before = self.process.cpu()?;
        let load = self.script.run(self.address, connections, options.seconds)?;
        let (cpu, calls) = (self.process.cpu()? - before, self.redis.take_calls().await);
        self.judge(&load)?;
        self.probe()?;
        let requests = load.requests as f64;
        Ok(Run { load, cpu: cpu / requests, calls: 100.0 * calls / requests })
    }

    fn judge(&self, load: &Load) -> Result<(), String> {
        let Load { requests, refused, failed, .. } = *load;
        let right =
            if self.side.is_refused() { refused as f64 >= (1.0 - ADMITTED) * requests as f64 } else { refused == 0 };
        if right && failed == 0 && requests > 0 {
            return Ok(());
        }
        let name = self.side.name;
        Err(format!(
            "{name}: of {requests} requests {refused} were refused and {failed} failed: that is no measurement"
        ))
    }

    /// `wrk` counts statuses above 399 and no more: one request shows which status it is.
    fn probe(&self) -> Result<(), String> {
        let tested = Client::connect(self.address).and_then(|mut client| client.ask(100_000)?.test(&self.side));
        tested.map_err(|fault| format!("{}: {fault}", self.side.name))
    }
}

pub(super) async fn rounds<'a>(
    mut runners: Vec<&'a mut Runner>,
    options: &Options,
    connections: u32,
) -> Result<Vec<Rounds<'a>>, String> {
    let turns = if runners.is_empty() { 0 } else { options.rounds };
    let mut seen: Vec<Vec<Run>> = runners.iter().map(|_| Vec::new()).collect();
    for round in 0..turns {
        eprintln!("round {} of {turns}, connections: {connections}", round + 1);
        for (runner, runs) in runners.iter_mut().zip(&mut seen) {
            runs.push(runner.run(options, connections).await?);
        }
    }
    Ok(runners.into_iter().zip(seen).map(|(runner, runs)| Rounds { side: &runner.side, runs }).collect())
}

impl Rounds<'_> {
    /// A figure of each round.
    pub(super) fn each(&self, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }

    /// A figure over that of another side, round by round.
    pub(super) fn over(&self, other: &Self, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().zip(&other.runs).map(|(run, other)| figure(run) / figure(other)).collect()
    }
}
