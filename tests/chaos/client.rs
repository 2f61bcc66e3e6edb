//! A connection to the server under test, kept alive: HTTP/1.1 by hand, as a client must cost little.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::app::{SHED, SOURCE};
use crate::sample::{Asks, By, Sample, Shedder};

/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Client {
    address: SocketAddr,
    stream: TcpStream,
    /// The answer as far as it was read.
    answer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = connect(address).await;
        Self { address, stream, answer: Vec::new() }
    }

    /// Sends one request and reads its answer. After a failure the connection is another.
    pub(crate) async fn ask<U: Asks>(&mut self, user: U, due: Instant) -> Sample<U> {
        let answered = timeout(PATIENCE, self.exchange(user)).await;
        let (status, by, shed) = if let Ok(Ok(answer)) = answered {
            answer
        } else {
            self.stream = connect(self.address).await;
            (0, By::Unknown, None)
        };
        Sample { user, due, done: Instant::now(), status, by, shed }
    }

    async fn exchange(&mut self, user: impl Asks) -> io::Result<Answer> {
        let (path, (name, value)) = (user.path(), user.header());
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n{name}: {value}\r\n\r\n");
        self.stream.write_all(request.as_bytes()).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(answer) = complete(&self.answer) {
                return Ok(answer);
            }
        }
    }
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.expect("the server listens");
    stream.set_nodelay(true).expect("a socket has this option");
    stream
}

/// Status, source and shedder.
type Answer = (u16, By, Option<Shedder>);

/// What an answer says, once it is there to its end.
fn complete(answer: &[u8]) -> Option<Answer> {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..head]).expect("these heads are ASCII");
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let length: usize = field("content-length").map_or(0, |length| length.parse().expect("a length"));
    let status = text.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
    let by = match field(SOURCE) {
        Some("store") => By::Redis,
        Some("deny-cache") => By::Memory,
        Some("fallback") => By::Fallback,
        Some("ratio") => By::Ratio,
        _ => By::Unknown,
    };
    let shed = field(SHED).map(|name| if name == "worker" { Shedder::Worker } else { Shedder::Fleet });
    (answer.len() >= head + 4 + length).then_some((status, by, shed))
}
