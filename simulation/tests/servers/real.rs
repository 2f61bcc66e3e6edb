//! A real server, and a connection to it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

/// Below those that the system gives to clients, and apart from those of the crate's own tests.
const PORTS: std::ops::Range<u16> = 12_000..16_000;
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
        for _ in 0..50 {
            if let Some(server) = Self::try_start(settings) {
                return server;
            }
        }
        panic!("no redis-server could be started on any of 50 ports");
    }

    fn try_start(settings: &[&str]) -> Option<Self> {
        let port = free_port();
        let folder = env::temp_dir().join(format!("tollgate-simulation-{}-{port}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut server = Command::new("redis-server");
        server.arg("--port").arg(port.to_string()).args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        server.arg("--dir").arg(&folder).args(settings);
        if settings.contains(&"--cluster-enabled") {
            server.arg("--cluster-port").arg((port + BUS).to_string());
        }
        let process = match server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                panic!("these tests need a redis-server: apt-get install redis-server")
            }
            Err(error) => panic!("redis-server cannot be started: {error}"),
        };
        let mut server = Self { process, folder, port };
        server.is_up().then_some(server)
    }

    /// Waits until this very process answers; `false` if it ended, as when its port, or that of its bus, was taken.
    fn is_up(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let own = format!("process_id:{}\r", self.process.id());
        while Instant::now() < deadline {
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            // One that asks for a password tells no more than that.
            if self.told().is_ok_and(|told| told.contains(&own) || told.starts_with("-NOAUTH")) {
                return true;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("redis-server did not answer on port {} in {PATIENCE:?}", self.port);
    }

    /// What is told of itself by the server at this port.
    fn told(&self) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"INFO server\r\nQUIT\r\n")?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        Ok(told)
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, unread: Vec::new() }
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let (span, first) = (PORTS.end - PORTS.start, process::id() % 4_000);
    for _ in 0..span {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + u16::try_from((first * 37 + step) % u32::from(span)).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port in {PORTS:?} is free");
}

/// A connection to a real server.
pub(crate) struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    /// Sends a command and returns the bytes of the answer.
    pub(crate) fn ask(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        self.send(&[words]);
        self.answer()
    }

    /// Sends several commands in one step.
    pub(crate) fn send(&mut self, commands: &[&[Vec<u8>]]) {
        let mut bytes = Vec::new();
        for words in commands {
            bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in *words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.stream.write_all(&bytes).unwrap();
    }

    /// Waits for the bytes of the next answer.
    pub(crate) fn answer(&mut self) -> Vec<u8> {
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
