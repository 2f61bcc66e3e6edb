//! A long way to a server, which can be cut.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// A way to a server: each byte takes a time, in either direction.
pub(super) struct Link {
    address: SocketAddr,
    way: Arc<Way>,
    task: JoinHandle<io::Result<()>>,
}

struct Way {
    delay: Duration,
    /// Until then nothing passes.
    cut_until: Mutex<Instant>,
    bytes: AtomicU64,
}

impl Link {
    pub(super) async fn to(server: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let way = Way { delay, cut_until: Mutex::new(Instant::now()), bytes: AtomicU64::new(0) };
        let way = Arc::new(way);
        let task = tokio::spawn(accept(listener, server, Arc::clone(&way)));
        Self { address, way, task }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// For so long nothing passes, on new connections neither. What is sent meanwhile arrives after that, as TCP sends
    /// again what was lost.
    pub(super) fn cut(&self, time: Duration) {
        *self.way.cut_until.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + time;
    }

    /// Bytes since the last call, of both directions.
    pub(super) fn take_bytes(&self) -> u64 {
        self.way.bytes.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Way {
    /// When that arrives which is sent now.
    fn arrival(&self) -> Instant {
        let cut_until = *self.cut_until.lock().unwrap_or_else(PoisonError::into_inner);
        cut_until.max(Instant::now()) + self.delay
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, way: Arc<Way>) -> io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        let server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        tokio::spawn(pass(client, server, Arc::clone(&way)));
    }
}

/// Ends with the first side that closes.
async fn pass(client: TcpStream, server: TcpStream, way: Arc<Way>) {
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        _ = pump(from_client, to_server, &way) => {}
        _ = pump(from_server, to_client, &way) => {}
    }
}

async fn pump(from: OwnedReadHalf, to: OwnedWriteHalf, way: &Way) -> io::Result<()> {
    let (on_the_way, arriving) = mpsc::unbounded_channel();
    tokio::select! {
        read = read(from, on_the_way, way) => read,
        written = write(to, arriving) => written,
    }
}

async fn read(mut from: OwnedReadHalf, to: mpsc::UnboundedSender<(Instant, Vec<u8>)>, way: &Way) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let read = from.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        way.bytes.fetch_add(read as u64, Ordering::Relaxed);
        let _ = to.send((way.arrival(), bytes[..read].to_vec()));
    }
}

async fn write(mut to: OwnedWriteHalf, mut from: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>) -> io::Result<()> {
    while let Some((due, bytes)) = from.recv().await {
        sleep_until(due).await;
        to.write_all(&bytes).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: Duration = Duration::from_millis(80);

    /// How long a byte takes there and back.
    async fn echo(stream: &mut TcpStream) -> Duration {
        let start = Instant::now();
        stream.write_all(b"x").await.expect("it is open");
        stream.read_exact(&mut [0]).await.expect("it comes back");
        start.elapsed()
    }

    async fn far_echo() -> (Link, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let link = Link::to(listener.local_addr().expect("bound"), WAY).await;
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let (mut from, mut to) = stream.split();
            tokio::io::copy(&mut from, &mut to).await
        });
        let stream = TcpStream::connect(link.address).await.expect("connected");
        (link, stream)
    }

    #[tokio::test]
    async fn a_byte_takes_the_delay_each_way() {
        let (link, mut stream) = far_echo().await;
        let took = echo(&mut stream).await;
        assert!(took >= 2 * WAY && took < 2 * WAY + Duration::from_millis(500), "{took:?}");
        assert_eq!((link.take_bytes(), link.take_bytes()), (2, 0));
    }

    #[tokio::test]
    async fn what_is_sent_during_a_cut_arrives_after_it() {
        let (link, mut stream) = far_echo().await;
        let cut = Duration::from_millis(400);
        link.cut(cut);
        assert!(echo(&mut stream).await >= cut + 2 * WAY);
        assert!(echo(&mut stream).await < cut + 2 * WAY, "the cut is over");
    }
}
