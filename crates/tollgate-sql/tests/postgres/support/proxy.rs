//! A proxy in front of a server, which delays, holds and cuts connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// What the proxy does with what servers send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Passes,
    /// The replies to commits, and what comes after them, wait until it passes again.
    HoldsCommits,
    /// Connections end.
    Cuts,
}

/// A proxy on a loopback port, while it is kept.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    mode: Arc<watch::Sender<Mode>>,
}

impl Proxy {
    /// Starts a proxy to a port; each direction is delayed by this time.
    pub(crate) async fn start(to: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (sender, mode) = watch::channel(Mode::Passes);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await {
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::spawn(pump(from_client, to_server, delay, mode.clone(), false));
                    tokio::spawn(pump(from_server, to_client, delay, mode.clone(), true));
                }
            }
        });
        Self { port, mode: Arc::new(sender) }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

/// Copies what comes from one side to the other, later.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delay: Duration,
    mut mode: watch::Receiver<Mode>,
    holds: bool,
) {
    let (sender, mut chunks) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let mut cut = mode.clone();
    let reads = async move {
        let mut bytes = vec![0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            if sender.send((Instant::now() + delay, bytes[..count].to_vec())).is_err() {
                break;
            }
        }
    };
    let writes = async move {
        while let Some((at, bytes)) = chunks.recv().await {
            sleep_until(at).await;
            let is_commit = holds && bytes.windows(7).any(|part| part == b"COMMIT\0");
            if is_commit && mode.wait_for(|mode| *mode == Mode::Passes).await.is_err() {
                break;
            }
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        _ = cut.wait_for(|mode| *mode == Mode::Cuts) => {}
        _ = async { tokio::join!(reads, writes) } => {}
    }
}
