//! Rounds of all sides in turn, and whether each did what it should.

use std::net::SocketAddr;

use super::app::HEADER;
use super::options::Options;
use super::process::{Process, Redis, head};
use super::sides::Side;
use super::wrk::{Load, Script};

/// Of the requests of a flood, the part that may be admitted.
const ADMITTED: f64 = 0.02;

/// A side that is up.
pub(crate) struct Runner {
    pub(crate) side: Side,
    pub(crate) address: SocketAddr,
    script: Script,
    process: Process,
    redis: Option<Redis>,
}

/// One round of one side.
pub(crate) struct Run {
    pub(crate) load: Load,
    /// Seconds of processor time, if the system tells.
    pub(crate) cpu: Option<f64>,
    calls: u64,
}

/// All rounds of one side.
pub(super) struct Rounds<'a> {
    pub(super) side: &'a Side,
    pub(super) loads: Vec<Load>,
    /// Seconds of processor time in all rounds, if the system tells.
    cpu: Option<f64>,
    /// In all rounds, if it has a Redis.
    calls: Option<u64>,
}

impl Runner {
    pub(super) fn start(side: Side) -> Result<Self, String> {
        let module = side.module.map(|build| build()).transpose()?;
        let redis = side.redis.then(|| Redis::start(module.as_deref())).transpose()?;
        let url = redis.as_ref().map(|redis| redis.url.clone()).unwrap_or_default();
        let (process, address) = Process::serve(&side, &url)?;
        let script = Script::new(side.name, side.keys)?;
        Ok(Self { side, address, script, process, redis })
    }

    /// Long enough that most keys are there, and what a flood may take is taken.
    pub(crate) fn warm_up(&mut self, options: &Options) -> Result<(), String> {
        self.script.run(self.address, options.connections, 2 * options.seconds)?;
        self.calls()?;
        self.probe()
    }

    pub(crate) fn run(&mut self, options: &Options, connections: u32) -> Result<Run, String> {
        let before = self.process.cpu();
        let load = self.script.run(self.address, connections, options.seconds)?;
        let cpu = self.process.cpu().zip(before).map(|(after, before)| after - before);
        let calls = self.calls()?;
        self.judge(&load)?;
        self.probe()?;
        self.calls()?;
        Ok(Run { load, cpu, calls })
    }

    fn calls(&mut self) -> Result<u64, String> {
        self.redis.as_mut().map_or(Ok(0), Redis::calls)
    }

    fn judge(&self, load: &Load) -> Result<(), String> {
        let Load { requests, refused, failed, .. } = *load;
        let right = if self.side.refused { refused as f64 >= (1.0 - ADMITTED) * requests as f64 } else { refused == 0 };
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
        let head = head(self.address, HEADER, "key-100000")?;
        let status = if self.side.refused { "http/1.1 429 " } else { "http/1.1 200 " };
        let proved = self.side.proof.is_none_or(|header| head.contains(&format!("\r\n{header}: ")));
        if head.starts_with(status) && proved {
            return Ok(());
        }
        Err(format!("{}: a response began with\n{head}", self.side.name))
    }
}

pub(super) fn rounds<'a>(
    runners: &'a mut [Runner],
    options: &Options,
    connections: u32,
    rounds: u32,
) -> Result<Vec<Rounds<'a>>, String> {
    let mut seen: Vec<Vec<Run>> = runners.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}, connections: {connections}", round + 1);
        for (runner, runs) in runners.iter_mut().zip(&mut seen) {
            runs.push(runner.run(options, connections)?);
        }
    }
    Ok(runners.iter().zip(seen).map(|(runner, runs)| Rounds::new(runner, runs)).collect())
}

impl<'a> Rounds<'a> {
    fn new(runner: &'a Runner, runs: Vec<Run>) -> Self {
        Self {
            side: &runner.side,
            cpu: runs.iter().map(|run| run.cpu).sum(),
            calls: runner.redis.is_some().then(|| runs.iter().map(|run| run.calls).sum()),
            loads: runs.into_iter().map(|run| run.load).collect(),
        }
    }

    /// Requests/s over those of another side, round by round.
    pub(super) fn over(&self, other: &Self) -> Vec<f64> {
        self.loads.iter().zip(&other.loads).map(|(load, other)| load.per_second / other.per_second).collect()
    }

    /// Seconds of processor time a request.
    pub(super) fn cpu(&self) -> Option<f64> {
        self.cpu.map(|cpu| cpu / self.requests())
    }

    /// Redis calls for 100 requests.
    pub(super) fn calls(&self) -> Option<f64> {
        self.calls.map(|calls| 100.0 * calls as f64 / self.requests())
    }

    fn requests(&self) -> f64 {
        self.loads.iter().map(|load| load.requests).sum::<u64>() as f64
    }
}
