//! The primary that sentinels name.

use deadpool_redis::redis::{ConnectionAddr, ConnectionInfo};
use deadpool_redis::sentinel::{Manager, Pool, SentinelNodeConnectionInfo, SentinelServerType, TlsMode};
use deadpool_redis::{RedisConnectionInfo, Runtime};

use super::pool::{Pools, unbuilt, unusable};
use crate::Error;

/// Connecting asks a sentinel, asks the server it names for its role, and connects to it; the first
/// sentinels may not answer.
const STEPS: u32 = 8;

impl Pools {
    /// A pool of connections to the primary that sentinels name: each new one asks them.
    pub(super) fn of_sentinels(
        self,
        sentinels: Vec<ConnectionInfo>,
        master_name: &str,
        login: RedisConnectionInfo,
    ) -> Result<Pool, Error> {
        let tls_mode = match sentinels.first().map(ConnectionInfo::addr) {
            Some(ConnectionAddr::TcpTls { insecure: true, .. }) => Some(TlsMode::Insecure),
            Some(ConnectionAddr::TcpTls { .. }) => Some(TlsMode::Secure),
            _ => None,
        };
        let primary = SentinelNodeConnectionInfo { tls_mode, redis_connection_info: Some(login) };
        let manager = Manager::new(sentinels, master_name.to_owned(), Some(primary), SentinelServerType::Master);
        let limit = Some(self.connect_timeout.saturating_mul(STEPS));
        Pool::builder(manager.map_err(unusable)?)
            .max_size(self.checked_size()?)
            .runtime(Runtime::Tokio1)
            .wait_timeout(limit)
            .create_timeout(limit)
            .recycle_timeout(limit)
            .build()
            .map_err(unbuilt)
    }
}
