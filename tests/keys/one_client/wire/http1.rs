//! Requests over HTTP/1.1, byte by byte.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::server::VARIANT;
use crate::one_client::check::Spelling;

const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a request on a connection of its own; `None` if there is no answer.
pub(super) async fn send(port: u16, spelling: &Spelling, variant: usize) -> Option<u16> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("the server listens");
    let mut answer = Vec::new();
    // Who answers early may close early.
    let _ = stream.write_all(&head(spelling, variant)).await;
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends");
    let status = answer.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(status).ok()?.parse().ok()
}

fn head(spelling: &Spelling, variant: usize) -> Vec<u8> {
    let Spelling { method, target, lines } = spelling;
    let mut head = format!("{method} {target} HTTP/1.1\r\n{VARIANT}: {variant}\r\nconnection: close\r\n").into_bytes();
    if lines.iter().all(|(name, _)| *name != "host") {
        head.extend(b"host: acme\r\n");
    }
    for (name, value) in lines {
        head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    head
}
