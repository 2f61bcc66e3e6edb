//! The process that serves, which ends with its owner.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use super::{LEAKY, SERVE};

pub(super) struct Process(Child);

impl Process {
    /// Starts it and answers where it listens.
    pub(super) fn start(redis: &str, leaky: bool) -> (Self, SocketAddr) {
        let program = std::env::current_exe().expect("this program is a file");
        let mut command = Command::new(program);
        command.args(["soak", SERVE, redis]).args(leaky.then_some(LEAKY));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self(command.spawn().expect("this program can be started"));
        let mut line = String::new();
        let output = process.0.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it is text");
        let port = line.trim().parse().expect("the server started");
        (process, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Memory in use, in kB.
    pub(super) fn memory_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("this needs Linux");
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        memory.and_then(|memory| memory.parse().ok()).expect("the server runs")
    }

    /// Open file descriptors.
    pub(super) fn files(&self) -> u64 {
        std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).expect("the server runs").count() as u64
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
