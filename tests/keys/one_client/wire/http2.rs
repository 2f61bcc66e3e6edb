//! Requests over HTTP/2, whose values are sent as they are, with white space around.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::server::VARIANT;
use crate::one_client::check::Spelling;

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection, made again where one ends.
pub(super) struct Client {
    port: u16,
    sender: Option<SendRequest<Bytes>>,
}

impl Client {
    pub(super) fn new(port: u16) -> Self {
        Self { port, sender: None }
    }

    /// Sends a request; `None` if it cannot be one, or has no answer.
    pub(super) async fn send(&mut self, spelling: &Spelling, variant: usize) -> Option<u16> {
        let request = request(spelling, variant)?;
        let sender = match self.sender.take() {
            Some(sender) => sender,
            None => connect(self.port).await,
        };
        let mut sender = timeout(PATIENCE, sender.ready()).await.expect("there is room").ok()?;
        let (response, _) = sender.send_request(request, true).ok()?;
        let response = timeout(PATIENCE, response).await.expect("there is an answer");
        self.sender = Some(sender);
        Some(response.ok()?.status().as_u16())
    }
}

async fn connect(port: u16) -> SendRequest<Bytes> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("the server listens");
    let (sender, connection) = h2::client::handshake(stream).await.expect("the server speaks HTTP/2");
    tokio::spawn(connection);
    sender
}

fn request(spelling: &Spelling, variant: usize) -> Option<Request<()>> {
    let mut absolute = spelling.clone();
    if spelling.target.starts_with('/') {
        absolute.target = format!("http://acme{}", spelling.target);
    }
    let mut request = absolute.request()?;
    request.headers_mut().insert(VARIANT, variant.into());
    Some(request)
}
