//! Processes of a side, which end with their owner.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::SERVE;
use super::sides::{BURST, Server, Side};

pub(super) struct Process(Child);

impl Process {
    /// Starts the server of a side, with so many units at once for each client, and answers where it listens.
    pub(super) fn serve(side: &Side, urls: &str, burst: u32) -> Result<(Self, SocketAddr), String> {
        let command = match side.server {
            Server::This(_) => this_program(None)?,
            Server::Other(build) => Command::new(build()?),
        };
        Self::listening(command, side, urls, burst)
    }

    /// Starts a server of this program under callgrind, which writes its profile when the server has ended.
    pub(super) fn serve_counted(side: &Side, urls: &str, profile: &Path) -> Result<(Self, SocketAddr), String> {
        Self::listening(this_program(Some(profile))?, side, urls, BURST)
    }

    fn listening(mut command: Command, side: &Side, urls: &str, burst: u32) -> Result<(Self, SocketAddr), String> {
        if let Server::This(_) = side.server {
            command.args([SERVE, side.name]);
        }
        command.args([urls, &burst.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self::start(&mut command, side.name)?;
        let mut line = String::new();
        let output = process.0.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).map_err(|fault| fault.to_string())?;
        let port = line.trim().parse().map_err(|_| format!("{} did not start", side.name))?;
        Ok((process, SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
    }

    /// Seconds of processor time used so far.
    pub(super) fn cpu(&self) -> Result<f64, String> {
        let path = format!("/proc/{}/stat", self.0.id());
        let stat = std::fs::read_to_string(&path).map_err(|fault| format!("{path}: {fault}"))?;
        // The name before the last parenthesis may hold anything; user and system time are the 14th
        // and 15th field of all, in hundredths on every Linux.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
        Ok(ticks.sum::<f64>() / 100.0)
    }

    /// Ends a server that this did not have to kill.
    pub(super) fn finish(mut self) -> Result<(), String> {
        drop(self.0.stdin.take());
        let status = self.0.wait().map_err(|fault| fault.to_string())?;
        status.success().then_some(()).ok_or_else(|| format!("the server ended with {status}"))
    }

    fn start(command: &mut Command, what: &str) -> Result<Self, String> {
        command.spawn().map(Self).map_err(|fault| format!("{what} cannot be started: {fault}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This program, perhaps under callgrind.
fn this_program(profile: Option<&Path>) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|fault| fault.to_string())?;
    let Some(profile) = profile else { return Ok(Command::new(program)) };
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind", &format!("--callgrind-out-file={}", profile.display())]).arg(program);
    Ok(command)
}
