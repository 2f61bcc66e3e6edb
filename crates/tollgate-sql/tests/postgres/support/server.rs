//! A PostgreSQL server of a test's own.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::{env, fs, process};

const INSTALL: &str = "these tests need PostgreSQL 14 or later: run sudo apt-get install postgresql";

/// Below the range from which the system gives ports to clients, so a port stays free between a stop and a restart.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const ATTEMPTS: usize = 50;

/// A `postgres` on a loopback port, stopped when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    port: u16,
    folder: PathBuf,
}

impl Server {
    /// Creates a cluster of databases, and starts its server.
    pub(crate) fn start() -> Self {
        static COUNT: AtomicU16 = AtomicU16::new(0);
        let name = format!("tollgate-postgres-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut server = Self { port: 0, folder: env::temp_dir().join(name) };
        fs::create_dir_all(&server.folder).expect("the temporary folder can be written");
        if let Some((user, group)) = unprivileged() {
            chown(&server.folder, Some(user), Some(group)).expect("root may give folders away");
        }
        let settings = "--username=postgres --auth=trust --no-sync --encoding=UTF8 --locale=C";
        assert!(server.control(&["-o", settings, "initdb"]), "{:?}", server.folder);
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            if server.runs() {
                return server;
            }
        }
        panic!("no postgres could be started on any of {ATTEMPTS} ports: {}", server.log());
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server at once, as a crash would: connections end, and what was not committed is lost.
    pub(crate) fn kill(&mut self) {
        assert!(self.control(&["-m", "immediate", "stop"]), "{}", self.log());
    }

    /// Starts it again, on the same port, and waits until it accepts connections.
    pub(crate) fn restart(&mut self) {
        assert!(self.runs(), "it did not start again: {}", self.log());
    }

    /// Starts the server, and waits until it accepts connections; `false` if it ended.
    fn runs(&self) -> bool {
        let settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=200"];
        let settings: String = settings.iter().map(|setting| format!(" -c {setting}")).collect();
        self.control(&["-l", "log", "-o", &format!("-p {}{settings}", self.port), "start"])
    }

    /// Has PostgreSQL's own program do something with the cluster, as a user that it accepts: it refuses root.
    fn control(&self, what: &[&str]) -> bool {
        let mut control = Command::new(programs().join("pg_ctl"));
        control.current_dir(&self.folder).args(["-s", "-w", "-D", "data"]).args(what);
        if let Some((user, group)) = unprivileged() {
            control.uid(user).gid(group);
        }
        let control = control.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        control.status().expect(INSTALL).success()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.control(&["-m", "immediate", "stop"]);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

/// Where its programs are: Debian keeps them out of the path, by version.
fn programs() -> PathBuf {
    let debian =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).chain(debian).collect();
    folders.retain(|folder| folder.join("postgres").exists() && folder.join("initdb").exists());
    folders.pop().expect(INSTALL)
}

/// The user and group `nobody`, if the tests run as root.
fn unprivileged() -> Option<(u32, u32)> {
    if fs::metadata("/proc/self").is_ok_and(|own| own.uid() != 0) {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let nobody = users.lines().find_map(|line| line.strip_prefix("nobody:"))?;
    let mut ids = nobody.split(':').skip(1).map_while(|id| id.parse().ok());
    Some((ids.next()?, ids.next()?))
}

fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let own = u16::try_from(process::id() % 12_000).unwrap_or_default();
    loop {
        let place = (own + 7 * NEXT.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
        let port = PORTS.start + place;
        let is_free = TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free && TcpStream::connect(("127.0.0.1", port)).is_err() {
            return port;
        }
    }
}
