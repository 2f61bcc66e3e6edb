//! A connection that is kept alive: HTTP/1.1 by hand, as a client must cost little.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::app::USER;

pub(super) struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    /// The answer as far as it was read.
    answer: Vec<u8>,
}

impl Client {
    /// A client that always asks for the same.
    pub(super) async fn connect(address: SocketAddr, path: &str, user: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n{USER}: {user}\r\n\r\n").into_bytes();
        Ok(Self { stream, request, answer: Vec::new() })
    }

    /// Sends the request and reads the answer to its end; returns the status.
    pub(super) async fn ask(&mut self) -> io::Result<u16> {
        self.stream.write_all(&self.request).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(status) = complete(&self.answer) {
                return Ok(status);
            }
        }
    }
}

/// The status, once the answer is there to its end.
fn complete(answer: &[u8]) -> Option<u16> {
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&answer[..head]).ok()?;
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Some(0), |length| length.parse().ok())?;
    let status = text.get(9..12)?.parse().ok()?;
    (answer.len() >= head + 4 + length).then_some(status)
}
