//! A connection to the server under test, kept alive: HTTP/1.1 by hand, as a client must cost little.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::app::{SOURCE, USER};
use crate::sample::{By, Sample, User};

/// A client gives up after this time.
const PATIENCE: Duration = Duration::from_secs(5);

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
    pub(crate) async fn ask(&mut self, user: User, due: Instant) -> Sample {
        let answered = timeout(PATIENCE, self.exchange(user)).await;
        let (status, by) = if let Ok(Ok(answer)) = answered {
            answer
        } else {
            self.stream = connect(self.address).await;
            (0, By::Unknown)
        };
        Sample { user, due, done: Instant::now(), status, by }
    }

    async fn exchange(&mut self, user: User) -> io::Result<(u16, By)> {
        let request = format!("GET {} HTTP/1.1\r\nhost: test\r\n{USER}: {}\r\n\r\n", user.path(), user.key());
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

/// Status and source, once the answer is there to its end.
fn complete(answer: &[u8]) -> Option<(u16, By)> {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..head]).expect("these heads are ASCII");
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let length: usize = field("content-length").map_or(0, |length| length.parse().expect("a length"));
    let status = text.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
    let by = match field(SOURCE) {
        Some("store") => By::Redis,
        Some("deny-cache") => By::Memory,
        Some("fallback") => By::Fallback,
        _ => By::Unknown,
    };
    (answer.len() >= head + 4 + length).then_some((status, by))
}
