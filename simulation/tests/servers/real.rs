//! A real server, and a connection to it.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// How much higher the port of a Cluster's bus is.
pub(crate) const BUS: u16 = 4_000;

const PATIENCE: Duration = Duration::from_secs(10);

/// A `redis-server` on a loopback port, stopped when dropped.
pub(crate) struct RealServer {
    process: Child,
    folder: PathBuf,
    pub(crate) port: u16,
}

impl RealServer {
    /// Starts one, and waits until it answers.
    pub(crate) fn start(settings: &[&str]) -> Self {
        (0..100).find_map(|_| Self::try_start(next_port()?, settings)).expect("no redis-server could be started")
    }

    /// `None` if it ends, as when its port or that of its bus was taken meanwhile.
    fn try_start(port: u16, settings: &[&str]) -> Option<Self> {
        let folder = env::temp_dir().join(format!("tollgate-simulation-{}-{port}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = env::var("TOLLGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut server = Command::new(&program);
        server.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        server.arg("--dir").arg(&folder).args(settings);
        if settings.contains(&"--cluster-enabled") {
            server.arg("--cluster-port").arg((port + BUS).to_string());
        }
        let process = match server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                panic!("these tests need {program}: apt-get install redis-server, or set TOLLGATE_REDIS_SERVER")
            }
            spawned => spawned.expect("redis-server can be started"),
        };
        let (mut server, deadline) = (Self { process, folder, port }, Instant::now() + PATIENCE);
        let own = format!("process_id:{}\r", server.process.id());
        while server.process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "redis-server did not answer on port {port} in {PATIENCE:?}");
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                let info = server.connect().ask(&[b"INFO".to_vec(), b"server".to_vec()]);
                return String::from_utf8_lossy(&info).contains(&own).then_some(server);
            }
            thread::sleep(Duration::from_millis(2));
        }
        None
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, unread: Vec::new() }
    }
}

/// A port that no other test of this process has had; `None` if it is taken. They are below those that the system gives to
/// clients, and apart from those of the crate's own tests.
fn next_port() -> Option<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(process::id() * 7 % 3_900).unwrap();
    let port = 12_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 4_000;
    TcpListener::bind(("127.0.0.1", port)).is_ok().then_some(port)
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A connection to a real server.
pub(crate) struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    /// Sends a command and returns the bytes of the answer.
    pub(crate) fn ask(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&bytes).unwrap();
        let mut part = [0; 16_000];
        loop {
            if let Some(size) = size_of_reply(&self.unread) {
                return self.unread.drain(..size).collect();
            }
            let count = self.stream.read(&mut part).unwrap();
            assert!(count > 0, "the server closed the connection");
            self.unread.extend_from_slice(&part[..count]);
        }
    }
}

/// Bytes of the first reply; `None` if it has not come as a whole.
fn size_of_reply(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || str::from_utf8(&bytes[1..line - 2]).unwrap().parse::<i64>().unwrap();
    match bytes[0] {
        b'$' if number() >= 0 => {
            let size = line + usize::try_from(number()).unwrap() + 2;
            (bytes.len() >= size).then_some(size)
        }
        b'*' => (0..number()).try_fold(line, |place, _| Some(place + size_of_reply(&bytes[place..])?)),
        _ => Some(line),
    }
}
