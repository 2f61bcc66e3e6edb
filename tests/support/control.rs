//! What can happen to a server, and what must hold of one.

use std::process::Command;

use super::server::{RedisServer, spawn};

impl RedisServer {
    /// Starts a server that asks for a password.
    pub(crate) fn start_with_password(password: &'static str) -> Self {
        Self::start_with(Some(password), &[])
    }

    /// Starts a server with settings as on the command line.
    pub(crate) fn start_with_settings(settings: &[&str]) -> Self {
        Self::start_with(None, settings)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server at once. What it knew is gone.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("a child can be killed");
        self.process.wait().expect("a child can be waited for");
    }

    /// Starts the server again after [`kill`](Self::kill), on the same port, and waits until it
    /// answers.
    pub(crate) fn restart(&mut self) {
        self.process = spawn(self.port, &self.folder, self.password, &self.settings);
        assert!(self.answers(), "port {} was taken meanwhile", self.port);
    }

    /// Stops the server from answering; its connections stay open.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    /// Checks that every key has a time to live.
    #[track_caller]
    pub(crate) fn assert_every_key_expires(&self) {
        for key in self.keys() {
            let ttl: i64 = self.ask(&["PTTL", &key]);
            assert_ne!(ttl, -1, "{key} never expires");
        }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.process.id().to_string()).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill {signal} failed");
    }
}
