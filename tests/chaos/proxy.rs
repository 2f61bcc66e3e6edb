//! What stands between a process and its Redis, and can do wrong there.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};

/// What comes from a server that is no Redis.
const GARBAGE: [&[u8]; 3] = [
    b"\x00\xff\x13\x37\r\n\x16\x03\x01",
    b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
    b"$100000000\r\nnot as much as was promised",
];
/// Replies to something that was not asked.
const OTHERS: [&[u8]; 3] = [b":42\r\n", b"$-1\r\n", b"*2\r\n+OK\r\n:1\r\n"];

/// What happens to the replies of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// They come later.
    Delay(Duration),
    /// They are lost, as are requests: what has lost some bytes lets no others through either.
    Mute,
    /// Half of one comes, then the connection ends: every other one is reset.
    Cut,
    /// What is no reply comes instead. A connection on which this began stays so.
    Garbage,
    /// Replies to something else come instead. A connection on which this began stays so.
    Others,
}

impl Mode {
    /// Whether a connection can never be used again.
    fn spoils(self) -> bool {
        matches!(self, Self::Mute | Self::Garbage | Self::Others)
    }
}

#[derive(Clone)]
pub(crate) struct Proxy {
    address: SocketAddr,
    mode: Arc<Mutex<Mode>>,
    cuts: Arc<Notify>,
}

impl Proxy {
    /// Listens in the background.
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let proxy = Self { address, mode: Arc::new(Mutex::new(Mode::Pass)), cuts: Arc::default() };
        tokio::spawn(proxy.clone().listen(listener, server));
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    /// Ends all connections that there are.
    pub(crate) fn cut(&self) {
        self.cuts.notify_waiters();
    }

    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn listen(self, listener: TcpListener, server: u16) {
        for number in 0.. {
            let (client, _) = listener.accept().await.expect("it listens");
            let proxy = self.clone();
            // Either end closes the other.
            tokio::spawn(async move { proxy.connect(client, server, number).await });
        }
    }

    async fn connect(self, client: TcpStream, server: u16, number: usize) -> io::Result<()> {
        if number % 2 == 1 {
            client.set_zero_linger()?;
        }
        let server = TcpStream::connect(("127.0.0.1", server)).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        let (replies, sent) = unbounded_channel();
        tokio::select! {
            ended = self.requests(from_client, to_server) => ended,
            ended = self.replies(from_server, replies, number) => ended,
            ended = write(sent, to_client) => ended,
            () = self.cuts.notified() => Ok(()),
        }
    }

    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let (mut bytes, mut mute) = (Vec::new(), false);
        while from.read_buf(&mut bytes).await? > 0 {
            mute |= self.mode() == Mode::Mute;
            if !mute {
                to.write_all(&bytes).await?;
            }
            bytes.clear();
        }
        Ok(())
    }

    async fn replies(&self, mut from: OwnedReadHalf, to: Replies, number: usize) -> io::Result<()> {
        let mut spoilt = None;
        loop {
            let mut bytes = Vec::with_capacity(4_096);
            if from.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
            let mode = spoilt.unwrap_or_else(|| self.mode());
            spoilt = Some(mode).filter(|mode| mode.spoils());
            match mode {
                Mode::Mute => {}
                Mode::Garbage => drop(to.send((Instant::now(), GARBAGE[number % GARBAGE.len()].to_vec()))),
                Mode::Others => drop(to.send((Instant::now(), OTHERS[number % OTHERS.len()].to_vec()))),
                Mode::Pass => drop(to.send((Instant::now(), bytes))),
                Mode::Delay(delay) => drop(to.send((Instant::now() + delay, bytes))),
                Mode::Cut => {
                    bytes.truncate(bytes.len() / 2);
                    let _ = to.send((Instant::now(), bytes));
                    drop(to);
                    // The writer ends the connection.
                    return pending().await;
                }
            }
        }
    }
}

type Replies = UnboundedSender<(Instant, Vec<u8>)>;

/// Writes each reply when its time has come, in order.
async fn write(mut replies: UnboundedReceiver<(Instant, Vec<u8>)>, mut to: OwnedWriteHalf) -> io::Result<()> {
    while let Some((due, bytes)) = replies.recv().await {
        sleep_until(due).await;
        to.write_all(&bytes).await?;
    }
    Ok(())
}
