//! A way to Redis that can go silent, or be long.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Passes connections on to a port, on a thread of its own: so its tasks are not counted with a test's.
pub(crate) struct Proxy {
    address: SocketAddr,
    silences: Arc<AtomicU64>,
    runtime: Option<Runtime>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        Self::far(port, Duration::ZERO)
    }

    /// Each byte takes so long, in either direction.
    pub(crate) fn far(port: u16, delay: Duration) -> Self {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime can be built");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a listener can be asked without waiting");
        let address = listener.local_addr().expect("a listener has an address");
        let silences = Arc::new(AtomicU64::new(0));
        runtime.spawn(accept(listener, port, delay, Arc::clone(&silences)));
        Self { address, silences, runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on nothing passes on the connections that there are, which stay open. New ones work.
    pub(crate) fn silence(&self) {
        self.silences.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(
    listener: std::net::TcpListener,
    port: u16,
    delay: Duration,
    silences: Arc<AtomicU64>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        let server = TcpStream::connect(("127.0.0.1", port)).await?;
        tokio::spawn(pass(client, server, delay, Arc::clone(&silences)));
    }
}

/// Ends with the first side that closes.
async fn pass(client: TcpStream, server: TcpStream, delay: Duration, silences: Arc<AtomicU64>) {
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        _ = pump(from_client, to_server, delay, &silences) => {}
        _ = pump(from_server, to_client, delay, &silences) => {}
    }
}

async fn pump(from: OwnedReadHalf, to: OwnedWriteHalf, delay: Duration, silences: &AtomicU64) -> io::Result<()> {
    let (on_the_way, arriving) = mpsc::unbounded_channel();
    tokio::select! {
        read = read(from, delay, on_the_way, silences) => read,
        written = write(to, arriving) => written,
    }
}

async fn read(
    mut from: OwnedReadHalf,
    delay: Duration,
    to: mpsc::UnboundedSender<(Instant, Vec<u8>)>,
    silences: &AtomicU64,
) -> io::Result<()> {
    let (born, mut bytes) = (silences.load(Ordering::SeqCst), [0; 4096]);
    loop {
        let read = from.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        if silences.load(Ordering::SeqCst) == born {
            let _ = to.send((Instant::now() + delay, bytes[..read].to_vec()));
        }
    }
}

async fn write(mut to: OwnedWriteHalf, mut from: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>) -> io::Result<()> {
    while let Some((due, bytes)) = from.recv().await {
        sleep_until(due).await;
        to.write_all(&bytes).await?;
    }
    Ok(())
}
