//! A Redis server of a test's own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, io, net, process, thread};

use tollgate::deadpool_redis::redis::{Client, Connection, FromRedisValue, RedisResult, cmd};

/// Ports are taken from below the range from which the system gives them to clients: so a port
/// stays free between a stop and a restart.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const ATTEMPTS: usize = 50;
const PATIENCE: Duration = Duration::from_secs(10);

/// A `redis-server` on a loopback port, stopped when dropped.
#[derive(Debug)]
pub(crate) struct RedisServer {
    pub(super) process: Child,
    pub(super) port: u16,
    pub(super) folder: PathBuf,
    pub(super) password: Option<&'static str>,
    #[allow(dead_code, reason = "only tests that restart a server read them")]
    pub(super) settings: Vec<String>,
}

impl RedisServer {
    /// Starts a server and waits until it answers.
    pub(crate) fn start() -> Self {
        Self::start_with(None, &[])
    }

    pub(super) fn start_with(password: Option<&'static str>, settings: &[&str]) -> Self {
        let settings: Vec<String> = settings.iter().map(|setting| (*setting).to_owned()).collect();
        for _ in 0..ATTEMPTS {
            let port = free_port();
            let folder = env::temp_dir().join(format!("tollgate-test-{}-{port}", process::id()));
            fs::create_dir_all(&folder).expect("the temporary folder can be written");
            let process = spawn(port, &folder, password, &settings);
            let mut server = Self { process, port, folder, password, settings: settings.clone() };
            if server.answers() {
                return server;
            }
        }
        panic!("no {} could be started on any of {ATTEMPTS} ports", program());
    }

    /// What to connect to.
    pub(crate) fn url(&self) -> String {
        let user = self.password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{user}127.0.0.1:{}", self.port)
    }

    /// How many scripts and functions it has run since its statistics were reset.
    pub(crate) fn scripts(&self) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]);
        let is_call = |line: &&str| ["cmdstat_eval", "cmdstat_fcall"].iter().any(|name| line.starts_with(name));
        let count = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
        stats.lines().filter(is_call).filter_map(count).sum()
    }

    /// Asks the server something, past any store.
    #[track_caller]
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        self.session().ask(command)
    }

    /// Every key, in order.
    #[track_caller]
    pub(crate) fn keys(&self) -> Vec<String> {
        self.session().keys()
    }

    /// A connection for many questions.
    #[track_caller]
    pub(crate) fn session(&self) -> Session {
        Session(Mutex::new(self.connection().expect("the server answers")))
    }

    /// Waits until this very process answers; `false` if it ended, as when its port was taken.
    pub(super) fn answers(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let own = format!("process_id:{}\r", self.process.id());
        while Instant::now() < deadline {
            if self.process.try_wait().expect("a child can be asked").is_some() {
                return false;
            }
            let told = self.connection().and_then(|mut up| cmd("INFO").arg("server").query::<String>(&mut up));
            if told.is_ok_and(|info| info.contains(&own)) {
                return true;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("{} did not answer on port {} in {PATIENCE:?}", program(), self.port);
    }

    fn connection(&self) -> RedisResult<Connection> {
        let connection = Client::open(self.url())?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(connection)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A connection on which a server is asked, past any store.
pub(crate) struct Session(Mutex<Connection>);

impl Session {
    #[track_caller]
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cmd(command[0]).arg(&command[1..]).query(&mut *connection).expect("the command is right")
    }

    /// Every key, in order.
    #[track_caller]
    pub(crate) fn keys(&self) -> Vec<String> {
        let (_, mut keys): (u64, Vec<String>) = self.ask(&["SCAN", "0", "COUNT", "100000"]);
        keys.sort_unstable();
        keys
    }
}

/// The program of a server: `TOLLGATE_REDIS_SERVER`, or `redis-server`.
pub(crate) fn program() -> String {
    env::var("TOLLGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

pub(super) fn spawn(port: u16, folder: &PathBuf, password: Option<&str>, settings: &[String]) -> Child {
    let mut server = Command::new(program());
    server.arg("--port").arg(port.to_string()).args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    server.arg("--dir").arg(folder).args(settings);
    if let Some(password) = password {
        server.args(["--requirepass", password]);
    }
    match server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(process) => process,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            panic!("these tests need {}: apt-get install redis-server, or set TOLLGATE_REDIS_SERVER", program())
        }
        Err(error) => panic!("{} cannot be started: {error}", program()),
    }
}

/// A port that nobody listens on, and that no other test of this process was given.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.end - PORTS.start;
    let first = u16::try_from(process::id() % u32::from(span)).expect("a remainder of a u16 is one");
    for _ in 0..span {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + (first.wrapping_mul(37) % span + step % span) % span;
        if net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port in {PORTS:?} is free");
}
