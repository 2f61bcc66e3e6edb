//! Clients of many kinds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::client::{Client, Pace, leave};

/// What a client does again and again.
#[derive(Clone, Copy)]
enum Kind {
    /// Keeps below its limit.
    Steady,
    /// Is never the same twice.
    Fresh,
    /// Is refused nearly always.
    Flood,
    /// Logs in or fails to, and is refused for failures.
    Guess,
    /// Logs in or fails to, slowly.
    Slow,
    /// Waits for its turn.
    Queue,
    /// Does not wait for an answer.
    Leave,
}

impl Kind {
    /// How many clients there are of each, and how long they rest between requests, in milliseconds.
    const ALL: [(Self, u32, u64); 7] = [
        (Self::Steady, 10, 20),
        (Self::Fresh, 4, 10),
        (Self::Flood, 4, 5),
        (Self::Guess, 4, 20),
        (Self::Slow, 16, 10),
        (Self::Queue, 8, 10),
        (Self::Leave, 16, 10),
    ];

    /// Makes one request; returns whether it ended as it should.
    async fn request(self, client: &mut Client, address: SocketAddr, number: u64) -> bool {
        let answered = match self {
            Self::Steady => client.get("/", &format!("steady-{}", fastrand::u32(..10_000))).await,
            Self::Fresh => client.get("/", &format!("fresh-{number}")).await,
            Self::Flood => client.get("/", &format!("flood-{}", fastrand::u32(..10))).await,
            Self::Guess => client.post("/login", &format!("guess-{}", fastrand::u32(..50)), Pace::AtOnce).await,
            Self::Slow => {
                client.close();
                client.post("/login", &format!("slow-{}", fastrand::u32(..1_000)), Pace::ByteByByte).await
            }
            Self::Queue => client.get("/queued", &format!("queue-{}", fastrand::u32(..4))).await,
            Self::Leave => {
                let path = ["/slow", "/stream", "/queued"][fastrand::usize(..3)];
                let after = Duration::from_millis(fastrand::u64(..400));
                return leave(address, path, &format!("leave-{}", fastrand::u32(..100)), after).await.is_ok();
            }
        };
        answered.is_some_and(|(status, _)| status < 500)
    }
}

/// Ends when it is dropped.
pub(super) struct Load {
    counts: Arc<Counts>,
    _clients: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    failed: AtomicU64,
}

impl Load {
    pub(super) fn start(address: SocketAddr) -> Self {
        let (counts, mut clients) = (Arc::<Counts>::default(), JoinSet::new());
        for (kind, count, rest) in Kind::ALL {
            for _ in 0..count {
                clients.spawn(drive(kind, Duration::from_millis(rest), address, Arc::clone(&counts)));
            }
        }
        Self { counts, _clients: clients }
    }

    pub(super) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Requests that got no answer in time, or one of 500 and above.
    pub(super) fn failed(&self) -> u64 {
        self.counts.failed.load(Ordering::Relaxed)
    }
}

async fn drive(kind: Kind, rest: Duration, address: SocketAddr, counts: Arc<Counts>) {
    let mut client = Client::new(address);
    loop {
        let number = counts.requests.fetch_add(1, Ordering::Relaxed);
        if !kind.request(&mut client, address, number).await {
            counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        sleep(rest).await;
    }
}
