//! A steady load: every request has its time, whatever became of those before.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::client::Client;
use crate::sample::{Asks, Sample};

/// Requests a second, over all connections.
pub(crate) const RATE: u32 = 2_100;
/// The same where connections are to be idle in between.
pub(crate) const QUIET_RATE: u32 = 20;
/// Connections at the full rate, which take turns. Each has a quarter of a second for a request before
/// the next is due on it, at any rate.
const CONNECTIONS: u32 = 512;

pub(crate) struct Load<U> {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<Sample<U>>>>,
}

impl<U: Asks> Load<U> {
    /// Connects and begins.
    pub(crate) async fn start(address: SocketAddr, rate: u32) -> Self {
        let connections = CONNECTIONS.min(rate / 4);
        let clients = join_all((0..connections).map(|_| Client::connect(address))).await;
        let (start, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let clients = (0..).zip(clients).map(|(first, client)| {
            let turns = (first..).step_by(connections as usize);
            let due = turns.map(move |request| (request, start + Duration::from_secs(1) * request / rate));
            tokio::spawn(drive(client, due, Arc::clone(&stop)))
        });
        Self { clients: clients.collect(), stop }
    }

    /// Ends it; returns all requests.
    pub(crate) async fn stop(self) -> Vec<Sample<U>> {
        self.stop.store(true, Ordering::Relaxed);
        let samples = join_all(self.clients).await;
        samples.into_iter().flat_map(|samples| samples.expect("no client panics")).collect()
    }
}

async fn drive<U: Asks>(
    mut client: Client,
    due: impl Iterator<Item = (u32, Instant)>,
    stop: Arc<AtomicBool>,
) -> Vec<Sample<U>> {
    let mut samples = Vec::new();
    for (request, due) in due {
        sleep_until(due).await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        samples.push(client.ask(U::of(request), due).await);
    }
    samples
}
