//! A way to a server that can be long, lose what is on it, replace it, or end.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// What comes from a server that is no Redis.
const GARBAGE: [&[u8]; 3] = [
    b"\x00\xff\x13\x37\r\n\x16\x03\x01",
    b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
    b"$100000000\r\nnot as much as was promised",
];
/// Replies to something that was not asked.
const OTHERS: [&[u8]; 3] = [b":42\r\n", b"$-1\r\n", b"*2\r\n+OK\r\n:1\r\n"];
/// What makes a call of a script.
const CALL: &[u8] = b"EVALSHA";

/// What happens to the replies of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// They come later.
    Delay(Duration),
    /// They are lost, as are requests. A connection on which this began stays so.
    Mute,
    /// Half of one comes, then the connection ends: every other one is reset.
    Cut,
    /// What is no reply comes instead. A connection on which this began stays so.
    Garbage,
    /// Replies to something else come instead. A connection on which this began stays so.
    Others,
    /// There are none, as connections end as soon as they are made.
    Closed,
}

/// Passes connections on to a port, on a thread of its own: so its tasks are not counted with a test's.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

struct Shared {
    /// What happens on the first so many connections.
    mode: watch::Sender<(Mode, usize)>,
    cuts: Notify,
    /// Calls on each connection.
    calls: Mutex<Vec<usize>>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("it can be built");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a listener can be asked without waiting");
        let address = listener.local_addr().expect("it is bound");
        let mode = watch::Sender::new((Mode::Pass, usize::MAX));
        let state = Arc::new(Shared { mode, cuts: Notify::new(), calls: Mutex::default() });
        runtime.spawn(accept(listener, port, Arc::clone(&state)));
        Self { address, shared: state, runtime: Some(runtime) }
    }

    /// A way on which each reply takes so long.
    pub(crate) fn far(port: u16, delay: Duration) -> Self {
        let proxy = Self::to(port);
        proxy.set(Mode::Delay(delay));
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// What happens from now on.
    pub(crate) fn set(&self, mode: Mode) {
        self.shared.mode.send_replace((mode, usize::MAX));
        if mode == Mode::Closed {
            self.cut();
        }
    }

    /// What happens from now on on the connections that there are. New ones work.
    pub(crate) fn set_old(&self, mode: Mode) {
        let count = self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.shared.mode.send_replace((mode, count));
    }

    /// Ends all connections that there are.
    pub(crate) fn cut(&self) {
        self.shared.cuts.notify_waiters();
    }

    /// Calls on each connection since this was last asked.
    pub(crate) fn take_calls(&self) -> Vec<usize> {
        let mut calls = self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter_mut().map(std::mem::take).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(listener: std::net::TcpListener, port: u16, shared: Arc<Shared>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        if shared.mode.borrow().0 != Mode::Closed {
            tokio::spawn(connect(client, port, Arc::clone(&shared)));
        }
    }
}

/// Ends with the first side that closes.
async fn connect(client: TcpStream, port: u16, shared: Arc<Shared>) -> io::Result<()> {
    let number = {
        let mut calls = shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(0);
        calls.len() - 1
    };
    if number % 2 == 1 {
        client.set_zero_linger()?;
    }
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (replies, sent) = unbounded_channel();
    tokio::select! {
        ended = shared.requests(from_client, to_server, number) => ended,
        ended = shared.replies(from_server, replies, number) => ended,
        ended = write(sent, to_client) => ended,
        () = shared.cuts.notified() => Ok(()),
    }
}

type Replies = UnboundedSender<(Instant, Vec<u8>)>;

impl Shared {
    fn mode(&self, number: usize) -> Mode {
        let (mode, most) = *self.mode.borrow();
        if number < most { mode } else { Mode::Pass }
    }

    async fn requests(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, number: usize) -> io::Result<()> {
        let (mut bytes, mut mute) = (Vec::new(), false);
        while from.read_buf(&mut bytes).await? > 0 {
            let calls = bytes.windows(CALL.len()).filter(|window| *window == CALL).count();
            self.calls.lock().unwrap_or_else(PoisonError::into_inner)[number] += calls;
            mute |= self.mode(number) == Mode::Mute;
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
            let mode = spoilt.unwrap_or_else(|| self.mode(number));
            spoilt = Some(mode).filter(|mode| matches!(mode, Mode::Mute | Mode::Garbage | Mode::Others));
            let (now, place) = (Instant::now(), number % 3);
            let (due, reply) = match mode {
                Mode::Mute => continue,
                Mode::Delay(delay) => (now + delay, bytes),
                Mode::Garbage => (now, GARBAGE[place].to_vec()),
                Mode::Others => (now, OTHERS[place].to_vec()),
                Mode::Pass | Mode::Closed => (now, bytes),
                Mode::Cut => (now, bytes[..bytes.len() / 2].to_vec()),
            };
            let _ = to.send((due, reply));
            if mode == Mode::Cut {
                drop(to);
                // The writer ends the connection.
                return std::future::pending().await;
            }
        }
    }
}

/// Writes each reply when its time has come, in order.
async fn write(mut replies: UnboundedReceiver<(Instant, Vec<u8>)>, mut to: OwnedWriteHalf) -> io::Result<()> {
    while let Some((due, bytes)) = replies.recv().await {
        sleep_until(due).await;
        to.write_all(&bytes).await?;
    }
    Ok(())
}
