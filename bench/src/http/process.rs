//! Processes of a side, which end with their owner.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tollgate::deadpool_redis::redis::{Client, Connection, cmd};

use super::sides::{Server, Side};
use super::{SERVE, free_port};

/// What a client calls to have one request decided, by any of the sides.
const CALLS: [&str; 4] = ["evalsha", "eval", "fcall", "cl.throttle"];

pub(super) struct Process(Child);

impl Process {
    /// Starts the server of a side and answers where it listens.
    pub(super) fn serve(side: &Side, url: &str) -> Result<(Self, SocketAddr), String> {
        let command = match side.server {
            Server::This(_) => this_program(None)?,
            Server::Other(build) => Command::new(build()?),
        };
        Self::listening(command, side, url)
    }

    /// Starts a server of this program under callgrind, which writes its profile when the server has ended.
    pub(super) fn serve_counted(side: &Side, url: &str, profile: &Path) -> Result<(Self, SocketAddr), String> {
        Self::listening(this_program(Some(profile))?, side, url)
    }

    fn listening(mut command: Command, side: &Side, url: &str) -> Result<(Self, SocketAddr), String> {
        if let Server::This(_) = side.server {
            command.args([SERVE, side.name]);
        }
        command.arg(url).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self::start(&mut command, side.name)?;
        let mut line = String::new();
        let output = process.0.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).map_err(|fault| fault.to_string())?;
        let port = line.trim().parse().map_err(|_| format!("{} did not start", side.name))?;
        Ok((process, SocketAddr::from((Ipv4Addr::LOCALHOST, port))))
    }

    /// Seconds of processor time used so far, if the system tells.
    pub(super) fn cpu(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        // The name before the last parenthesis may hold anything; user and system time are the 14th
        // and 15th field of all, in hundredths on every Linux.
        let fields = stat.rsplit(')').next()?.split_whitespace();
        let ticks: Vec<u32> = fields.skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
        Some(ticks.iter().map(|ticks| f64::from(*ticks)).sum::<f64>() / 100.0)
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

/// A `redis-server` of one side.
pub(super) struct Redis {
    _process: Process,
    connection: Connection,
    pub(super) url: String,
}

impl Redis {
    pub(super) fn start(module: Option<&Path>) -> Result<Self, String> {
        let port = free_port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        if let Some(module) = module {
            command.arg("--loadmodule").arg(module);
        }
        let what = "redis-server (apt-get install redis-server)";
        let process = Process::start(command.stdout(Stdio::null()), what)?;
        let url = format!("redis://127.0.0.1:{port}");
        let client = Client::open(&*url).expect("a URL");
        for _ in 0..100 {
            if let Ok(connection) = client.get_connection() {
                return Ok(Self { _process: process, connection, url });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("{what} does not answer"))
    }

    /// Calls that decided requests since this was asked last.
    pub(super) fn calls(&mut self) -> Result<u64, String> {
        let info: String = cmd("INFO").arg("commandstats").query(&mut self.connection).map_err(fault)?;
        let () = cmd("CONFIG").arg("RESETSTAT").query(&mut self.connection).map_err(fault)?;
        let calls = CALLS.iter().filter_map(|call| {
            let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{call}:calls=")))?;
            line.split(',').next()?.parse::<u64>().ok()
        });
        Ok(calls.sum())
    }
}

/// The head of the response to one request.
pub(super) fn head(address: SocketAddr, header: &str, key: &str) -> Result<String, String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let request = format!("GET / HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n{header}: {key}\r\n\r\n");
        std::io::Write::write_all(&mut stream, request.as_bytes())?;
        std::io::read_to_string(stream)
    };
    let response = ask().map_err(|fault| format!("{address} does not answer: {fault}"))?;
    Ok(response.split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase())
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn fault(error: tollgate::deadpool_redis::redis::RedisError) -> String {
    error.to_string()
}
