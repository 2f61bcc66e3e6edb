//! A primary, its replica, and sentinels of a test's own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, net, process, thread};

use tollgate::deadpool_redis::redis::{Client, FromRedisValue, RedisResult, cmd};

use crate::stores::wait_for;
use crate::support::server::{RedisServer, program};

/// After so long without an answer a sentinel takes the primary for dead.
const DOWN_AFTER: Duration = Duration::from_millis(500);

pub(crate) const NAME: &str = "limits";

/// A replica is sent its copy at once.
const PROMPT: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

const QUORUM: usize = 2;
const SENTINELS: usize = 3;
const ATTEMPTS: usize = 20;
const LIMIT: Duration = Duration::from_secs(20);

/// Servers that sentinels watch.
pub(crate) struct Watched {
    pub(crate) primary: RedisServer,
    pub(crate) replica: RedisServer,
    pub(crate) sentinels: Vec<Sentinel>,
}

impl Watched {
    pub(crate) fn start() -> Self {
        let primary = RedisServer::start_with_settings(&PROMPT);
        let port = primary.port().to_string();
        let replica = RedisServer::start_with_settings(&[&PROMPT[..], &["--replicaof", "127.0.0.1", &port]].concat());
        let sentinels: Vec<_> = (0..SENTINELS).map(|_| Sentinel::start(primary.port())).collect();
        for sentinel in &sentinels {
            wait_for("the sentinels know each other and the replica", || sentinel.knows_all());
        }
        Self { primary, replica, sentinels }
    }

    /// From now on the servers ask for a password; the sentinels ask for none.
    pub(crate) fn lock(&self, password: &str) {
        for server in [&self.primary, &self.replica] {
            let (): () = server.ask(&["CONFIG", "SET", "masterauth", password]);
            let (): () = server.ask(&["CONFIG", "SET", "requirepass", password]);
        }
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Sentinel::url).collect()
    }
}

/// A sentinel on a loopback port, stopped when dropped.
pub(crate) struct Sentinel {
    process: Child,
    pub(crate) port: u16,
    folder: PathBuf,
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        let settings = |port: u16, _: &Path| {
            format!(
                "port {port}\nsentinel monitor {NAME} 127.0.0.1 {primary} {QUORUM}\n\
                 sentinel down-after-milliseconds {NAME} {}\nsentinel failover-timeout {NAME} 2000\n",
                DOWN_AFTER.as_millis(),
            )
        };
        let mut attempts = (0..ATTEMPTS).map(|_| Self::start_with(settings));
        attempts.find_map(|mut sentinel| sentinel.answers().then_some(sentinel)).expect("a sentinel can be started")
    }

    /// Starts a sentinel with settings for its port and its folder, and does not wait until it answers.
    pub(crate) fn start_with(settings: impl FnOnce(u16, &Path) -> String) -> Self {
        let listener = net::TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port is free");
        let port = listener.local_addr().expect("it has an address").port();
        drop(listener);
        let folder = env::temp_dir().join(format!("tollgate-sentinel-{}-{port}", process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let (file, dir) = (folder.join("sentinel.conf"), folder.display());
        let settings = format!("bind 127.0.0.1\ndir {dir}\n{}", settings(port, &folder));
        fs::write(&file, settings).expect("the temporary folder can be written");
        let mut sentinel = Command::new(program());
        sentinel.arg(file).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = sentinel.spawn().expect("the servers were started, so sentinels can be");
        Self { process, port, folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn ask<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        let mut connection = Client::open(self.url())?.get_connection_with_timeout(LIMIT)?;
        cmd(command[0]).arg(&command[1..]).query(&mut connection)
    }

    fn answers(&mut self) -> bool {
        let (start, own) = (Instant::now(), format!("process_id:{}\r", self.process.id()));
        while start.elapsed() < LIMIT && self.process.try_wait().expect("a child can be asked").is_none() {
            if self.ask::<String>(&["INFO", "server"]).is_ok_and(|info| info.contains(&own)) {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Whether the primary is on a port.
    pub(crate) fn names(&self, port: u16) -> bool {
        let info: String = self.ask(&["INFO", "sentinel"]).unwrap_or_default();
        info.contains(&format!("address=127.0.0.1:{port},"))
    }

    fn knows_all(&self) -> bool {
        let info: String = self.ask(&["INFO", "sentinel"]).unwrap_or_default();
        info.contains("status=ok") && info.contains(&format!("slaves=1,sentinels={SENTINELS}"))
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
