//! The clients of a run: each sends one request at a time, on a connection of its own.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// What the page draws. Times are milliseconds since the start of the run.
#[derive(Debug, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Event {
    /// A response, of status 0 if the server sent none.
    Response {
        lane: usize,
        status: u16,
        obeys: bool,
        /// Whether the client had waited for `Retry-After` before.
        waited: bool,
        sent: u64,
        /// When the handler began, or the denial arrived.
        at: u64,
        head: String,
    },
    /// A request that was not sent, because the client obeys a `Retry-After`.
    Held { lane: usize },
    /// The units that are left.
    Left { lane: usize, at: u64, units: u64 },
}

pub(crate) struct Client {
    pub(crate) server: SocketAddr,
    pub(crate) path: String,
    pub(crate) key: String,
    pub(crate) lane: usize,
    pub(crate) obeys: bool,
    pub(crate) start: Instant,
    /// When it sends no more: what waited for its turn may have made it late.
    pub(crate) end: Instant,
    pub(crate) arrivals: Vec<u64>,
}

impl Client {
    pub(crate) async fn send_all(self, report: impl Fn(Event)) {
        let Self { lane, obeys, start, end, .. } = self;
        let (mut resume, mut waited) = (start, false);
        for arrival in &self.arrivals {
            tokio::time::sleep_until(start + Duration::from_millis(*arrival)).await;
            if Instant::now() > end {
                return;
            }
            if Instant::now() < resume {
                report(Event::Held { lane });
                continue;
            }
            let sent = millis_since(start);
            let (status, head, body) = self.send().await.unwrap_or_else(|error| (0, error.to_string(), String::new()));
            let at = body.parse().ok().filter(|_| status == 200).unwrap_or_else(|| millis_since(start));
            if obeys && let Some(seconds) = retry_after(&head) {
                resume = Instant::now() + Duration::from_secs(seconds);
            }
            report(Event::Response { lane, status, obeys, waited, sent, at, head });
            waited = resume > start;
        }
    }

    async fn send(&self) -> io::Result<(u16, String, String)> {
        let Self { server, path, key, .. } = self;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {server}\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n");
        let mut connection = TcpStream::connect(server).await?;
        connection.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        connection.read_to_string(&mut response).await?;
        let (head, body) = response.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        Ok((status, head.to_owned(), body.to_owned()))
    }
}

fn retry_after(head: &str) -> Option<u64> {
    head.lines().find_map(|line| line.strip_prefix("retry-after: ")?.parse().ok())
}

pub(crate) fn millis_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX)
}
