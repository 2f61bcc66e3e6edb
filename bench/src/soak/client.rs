//! HTTP/1.1 by hand: clients that stay, that are slow, and that go away.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::app::USER;

const PATIENCE: Duration = Duration::from_secs(5);
const BODY: &[u8] = b"password=of a somebody";
/// Between two bytes of a slow body.
const BYTE: Duration = Duration::from_millis(40);

/// A connection that is kept alive, and replaced when it fails.
pub(super) struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

/// How a body is sent.
#[derive(Clone, Copy)]
pub(super) enum Pace {
    AtOnce,
    ByteByByte,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// The status and the body; `None` if there was no answer in time.
    pub(super) async fn get(&mut self, path: &str, user: &str) -> Option<(u16, String)> {
        let stream = self.stream.take();
        self.keep(timeout(PATIENCE, get(stream, self.address, path, user)).await.ok()?)
    }

    pub(super) async fn post(&mut self, path: &str, user: &str, pace: Pace) -> Option<(u16, String)> {
        let stream = self.stream.take();
        self.keep(timeout(PATIENCE, post(stream, self.address, path, user, pace)).await.ok()?)
    }

    /// Ends the connection.
    pub(super) fn close(&mut self) {
        self.stream = None;
    }

    fn keep(&mut self, answered: io::Result<(TcpStream, u16, String)>) -> Option<(u16, String)> {
        let (stream, status, body) = answered.ok()?;
        self.stream = Some(stream);
        Some((status, body))
    }
}

/// Sends a request, or half of one, and goes away after a while without reading an answer.
pub(super) async fn leave(address: SocketAddr, path: &str, user: &str, after: Duration) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let head = head("GET", path, user, 0);
    let sent = if fastrand::u8(..4) == 0 { head.len() / 2 } else { head.len() };
    stream.write_all(&head.as_bytes()[..sent]).await?;
    sleep(after).await;
    Ok(())
}

type Answered = io::Result<(TcpStream, u16, String)>;

async fn get(stream: Option<TcpStream>, address: SocketAddr, path: &str, user: &str) -> Answered {
    let mut stream = opened(stream, address).await?;
    stream.write_all(head("GET", path, user, 0).as_bytes()).await?;
    answer(stream).await
}

async fn post(stream: Option<TcpStream>, address: SocketAddr, path: &str, user: &str, pace: Pace) -> Answered {
    let mut stream = opened(stream, address).await?;
    let mut request = head("POST", path, user, BODY.len()).into_bytes();
    if let Pace::AtOnce = pace {
        // A server that refuses by the head alone closes a connection whose body is still to come.
        request.extend(BODY);
    }
    stream.write_all(&request).await?;
    if let Pace::ByteByByte = pace {
        for byte in BODY {
            sleep(BYTE).await;
            stream.write_all(&[*byte]).await?;
        }
    }
    answer(stream).await
}

async fn opened(stream: Option<TcpStream>, address: SocketAddr) -> io::Result<TcpStream> {
    let stream = match stream {
        Some(stream) => stream,
        None => TcpStream::connect(address).await?,
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn head(method: &str, path: &str, user: &str, length: usize) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: soak\r\n{USER}: {user}\r\ncontent-length: {length}\r\n\r\n")
}

async fn answer(mut stream: TcpStream) -> Answered {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((status, body)) = complete(&String::from_utf8_lossy(&bytes)) {
            return Ok((stream, status, body));
        }
    }
}

/// Status and body, once the answer is there to its end.
fn complete(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Some(0), |length| length.parse().ok())?;
    let status = head.get(9..12)?.parse().ok()?;
    (body.len() >= length).then(|| (status, body.to_owned()))
}
