//! A PostgreSQL server of a test's own.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

const INSTALL: &str = "these tests need PostgreSQL 14 or later: run sudo apt-get install postgresql";

/// Below the range from which the system gives ports to clients, so a port stays free between a stop and a restart.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const ATTEMPTS: usize = 50;
const STARTING: Duration = Duration::from_secs(20);

/// A `postgres` on a loopback port, stopped when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Server {
    /// Creates a cluster of databases, and starts its server.
    pub(crate) fn start() -> Self {
        static COUNT: AtomicU16 = AtomicU16::new(0);
        let name = format!("tollgate-postgres-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        if let Some((user, group)) = unprivileged() {
            chown(&folder, Some(user), Some(group)).expect("root may give folders away");
        }
        let mut init = command("initdb", &folder);
        init.args(["--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C", "-D", "data"]);
        let made = init.output().expect(INSTALL);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for _ in 0..ATTEMPTS {
            let port = free_port();
            let mut server = Self { process: spawn(&folder, port), port, folder: folder.clone() };
            if server.accepts() {
                return server;
            }
            // The folder stays for the next attempt.
            server.folder = PathBuf::new();
        }
        panic!("no postgres could be started on any of {ATTEMPTS} ports: {}", log(&folder));
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server at once: connections end, and what was not committed is lost.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it was killed");
    }

    /// Starts it again, on the same port, and waits until it accepts connections.
    pub(crate) fn restart(&mut self) {
        let start = Instant::now();
        // It refuses to start until the last process of the killed one has noticed.
        while start.elapsed() < STARTING {
            self.process = spawn(&self.folder, self.port);
            if self.accepts() {
                return;
            }
        }
        panic!("it did not start again: {}", log(&self.folder));
    }

    /// Waits until it accepts connections; `false` if it ended.
    fn accepts(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < STARTING {
            if self.process.try_wait().expect("a child has a status").is_some() {
                return false;
            }
            let is_ready = command("pg_isready", &self.folder)
                .args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()])
                .status()
                .expect(INSTALL);
            if is_ready.success() {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("postgres did not accept connections: {}", log(&self.folder));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Of one that has ended, another process may have the number by now.
        if matches!(self.process.try_wait(), Ok(None)) {
            // SIGQUIT ends its children, too; SIGKILL leaves that to them.
            let quit = Command::new("kill").args(["-QUIT", &self.process.id().to_string()]).status();
            if !quit.is_ok_and(|status| status.success()) {
                let _ = self.process.kill();
            }
            let _ = self.process.wait();
        }
        if !self.folder.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

pub(crate) fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

fn spawn(folder: &Path, port: u16) -> Child {
    let log =
        fs::File::options().create(true).append(true).open(folder.join("log")).expect("the folder can be written");
    let settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "max_connections=200"];
    let mut postgres = command("postgres", folder);
    postgres.args(["-D", "data", "-p", &port.to_string()]).args(settings.iter().flat_map(|setting| ["-c", setting]));
    postgres.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect(INSTALL)
}

/// A program of PostgreSQL, in this folder, as a user that it accepts: it refuses root.
fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(programs().join(program));
    command.current_dir(folder);
    if let Some((user, group)) = unprivileged() {
        command.uid(user).gid(group);
    }
    command
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

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap_or_default()
}
