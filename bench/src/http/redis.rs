//! The Redis of one side, so that its calls and keys are those of that side.

use std::slice;

use super::sides::Counters;
use crate::cluster::Cluster;
use crate::server::Server;

/// What a client calls to have one request decided, by any of the sides.
const CALLS: [&str; 4] = ["evalsha", "eval", "fcall", "cl.throttle"];

pub(super) enum Redis {
    None,
    One(Server),
    Cluster(Cluster),
}

impl Redis {
    pub(super) async fn start(counters: Counters) -> Result<Self, String> {
        Ok(match counters {
            Counters::Nowhere | Counters::Memory => Self::None,
            Counters::Redis(None) => Self::One(Server::start().await),
            Counters::Redis(Some(build)) => {
                let module = build()?;
                Self::One(Server::start_with(&["--loadmodule", &module.to_string_lossy()]).await)
            }
            Counters::Cluster => Self::Cluster(Cluster::start().await),
        })
    }

    fn servers(&self) -> &[Server] {
        match self {
            Self::None => &[],
            Self::One(server) => slice::from_ref(server),
            Self::Cluster(cluster) => &cluster.primaries,
        }
    }

    pub(super) fn urls(&self) -> String {
        self.servers().iter().map(Server::url).collect::<Vec<_>>().join(",")
    }

    /// Calls that decided requests since this was asked last.
    pub(super) async fn take_calls(&self) -> f64 {
        let mut all = 0.0;
        for server in self.servers() {
            let mut connection = server.connection().await;
            let (calls, _) = server.command_stats(&mut connection, &CALLS).await;
            server.reset_stats(&mut connection).await;
            all += calls;
        }
        all
    }

    /// How many keys it holds.
    pub(super) async fn size(&self) -> usize {
        let mut all = 0;
        for server in self.servers() {
            all += server.size(&mut server.connection().await).await;
        }
        all
    }
}
