//! A side that is a program of its own, as it cannot be built with the others.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::http::tower_rate_limiter;
use crate::work::IETF;

/// A layer in a process of its own, which waits while other sides are measured. It ends with this value.
pub(super) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Builds and starts `tower-rate-limiter`; every client sends a request.
    pub(super) fn tower_rate_limiter(clients: usize) -> Self {
        let program = tower_rate_limiter().unwrap_or_else(|error| panic!("{error}"));
        let mut command = Command::new(program);
        command.args(["layer", &clients.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it was built");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut program = Self { input: child.stdin.take(), output, child };
        assert_eq!(program.line(), format!("ready: {}", IETF.join(" ")), "its responses have other headers");
        program
    }

    /// Returns how many nanoseconds its layer adds to a request.
    pub(super) fn nanos(&mut self, requests: usize) -> f64 {
        let input = self.input.as_mut().expect("it is open until this is dropped");
        writeln!(input, "{requests}").expect("it runs");
        self.line().parse().expect("a number")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it is text");
        line.trim().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        let status = self.child.wait().expect("it ends with its input");
        assert!(status.success() || std::thread::panicking(), "the layer's work was unequal");
    }
}
