//! A way to Redis on which calls are counted.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

/// What makes a call of a script.
const CALL: &[u8] = b"EVALSHA";

/// Passes connections on to a port, on a thread of its own.
pub(crate) struct Proxy {
    address: SocketAddr,
    calls: Calls,
    _runtime: Runtime,
}

/// Calls on each connection.
type Calls = Arc<Mutex<Vec<usize>>>;

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime can be built");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("loopback has a free port");
        let (address, calls) = (listener.local_addr().expect("it is bound"), Calls::default());
        runtime.spawn(accept(listener, port, Arc::clone(&calls)));
        Self { address, calls, _runtime: runtime }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Calls on each connection since this was last asked.
    pub(crate) fn take_calls(&self) -> Vec<usize> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter_mut().map(std::mem::take).collect()
    }
}

async fn accept(listener: TcpListener, port: u16, calls: Calls) -> io::Result<()> {
    loop {
        let (client, _) = listener.accept().await?;
        let server = TcpStream::connect(("127.0.0.1", port)).await?;
        tokio::spawn(pass(client, server, Arc::clone(&calls)));
    }
}

/// Ends with the first side that closes.
async fn pass(client: TcpStream, server: TcpStream, calls: Calls) {
    let ((from_client, to_client), (mut from_server, to_server)) = (client.into_split(), server.into_split());
    let mut to_client = to_client;
    tokio::select! {
        _ = count(from_client, to_server, &calls) => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}

async fn count(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, calls: &Calls) -> io::Result<()> {
    let connection = {
        let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(0);
        calls.len() - 1
    };
    let (mut bytes, mut sent) = (Vec::new(), 0);
    while from.read_buf(&mut bytes).await? > 0 {
        let found = bytes.windows(CALL.len()).filter(|window| *window == CALL).count();
        calls.lock().unwrap_or_else(PoisonError::into_inner)[connection] += found;
        to.write_all(&bytes[sent..]).await?;
        // The beginning of a call that comes in parts is kept.
        bytes.drain(..bytes.len().saturating_sub(CALL.len() - 1));
        sent = bytes.len();
    }
    Ok(())
}
