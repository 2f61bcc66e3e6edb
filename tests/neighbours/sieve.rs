//! A way to Redis that loses what is on it, or adds to it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// Passes connections on to a port, on a thread of its own.
pub(crate) struct Sieve {
    address: SocketAddr,
    faults: Faults,
    _runtime: Runtime,
}

#[derive(Clone, Default)]
struct Faults {
    /// Counts how often connections were to lose all that is sent on them from then on.
    silent: watch::Sender<u64>,
    /// The stray reply that was last to come before the next one of each connection.
    stray: watch::Sender<&'static [u8]>,
    /// Counts how often connections were to end.
    cut: watch::Sender<u64>,
    is_closed: Arc<AtomicBool>,
    /// What is sent to the first so many connections is held back.
    held: watch::Sender<usize>,
    made: Arc<AtomicUsize>,
}

impl Sieve {
    pub(crate) fn to(port: u16) -> Self {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime can be built");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let faults = Faults::default();
        runtime.spawn(accept(listener, port, faults.clone()));
        Self { address, faults, _runtime: runtime }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The connections that there are stay open, and lose all that is sent on them.
    pub(crate) fn silence(&self) {
        self.faults.silent.send_modify(|times| *times += 1);
    }

    /// Before the next reply on each connection that there is comes one that nobody asked for.
    pub(crate) fn go_astray(&self, reply: &'static [u8]) {
        self.faults.stray.send_replace(reply);
    }

    /// What is sent back on the connections that there are is held back until [`release`](Self::release).
    pub(crate) fn hold(&self) {
        self.faults.held.send_replace(self.faults.made.load(Ordering::SeqCst));
    }

    pub(crate) fn release(&self) {
        self.faults.held.send_replace(0);
    }

    /// Ends all connections, and new ones as soon as they are made.
    pub(crate) fn close(&self) {
        self.faults.is_closed.store(true, Ordering::SeqCst);
        self.faults.cut.send_modify(|times| *times += 1);
    }

    pub(crate) fn open(&self) {
        self.faults.is_closed.store(false, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, port: u16, faults: Faults) -> io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        if faults.is_closed.load(Ordering::SeqCst) {
            continue;
        }
        let server = TcpStream::connect(("127.0.0.1", port)).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (silent, stray, mut cut) = (faults.silent.subscribe(), faults.stray.subscribe(), faults.cut.subscribe());
        let (held, number) = (faults.held.subscribe(), faults.made.fetch_add(1, Ordering::SeqCst));
        tokio::spawn(async move {
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            tokio::select! {
                _ = pass(from_client, to_server, silent.clone(), None) => {}
                _ = pass(from_server, to_client, silent, Some(Back { stray, held, number })) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

/// What becomes of replies on a connection, and its number.
struct Back {
    stray: watch::Receiver<&'static [u8]>,
    held: watch::Receiver<usize>,
    number: usize,
}

/// Passes on what comes, until what comes is lost.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    silent: watch::Receiver<u64>,
    mut back: Option<Back>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    while from.read_buf(&mut bytes).await? > 0 {
        if let Some(Back { stray, held, number }) = &mut back {
            if stray.has_changed().unwrap_or(false) {
                let reply = *stray.borrow_and_update();
                to.write_all(reply).await?;
            }
            let _ = held.wait_for(|held| *number >= *held).await;
        }
        if !silent.has_changed().unwrap_or(true) {
            to.write_all(&bytes).await?;
        }
        bytes.clear();
    }
    Ok(())
}
