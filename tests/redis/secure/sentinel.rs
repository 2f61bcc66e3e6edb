//! A sentinel behind TLS, of a primary behind TLS.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tollgate::{Error, RedisStore};

use super::tls::{Authority, Identity, TlsServer};
use crate::sentinel::rig::Sentinel;

const BOUND: Duration = Duration::from_secs(20);

/// A sentinel that shows what the primary shows, and asks clients for a certificate.
pub(crate) fn sentinel_of(primary: &TlsServer, authority: &Authority, shown: &Identity) -> Sentinel {
    Sentinel::start_with(|port, folder: &Path| {
        let file = |name: &str, text: &str| {
            fs::write(folder.join(name), text).expect("the temporary folder can be written");
            folder.join(name).display().to_string()
        };
        let (ca, certificate) = (file("ca.pem", &authority.pem()), file("server.pem", &shown.certificate));
        let key = file("server.key", &shown.key);
        format!(
            "port 0\ntls-port {port}\ntls-replication yes\ntls-auth-clients yes\ntls-ca-cert-file {ca}\n\
             tls-cert-file {certificate}\ntls-key-file {key}\nsentinel monitor limits 127.0.0.1 {} 1\n",
            primary.port,
        )
    })
}

/// Connects once the sentinel has started.
pub(crate) async fn connected<T: Future<Output = Result<RedisStore, Error>>>(connect: impl Fn() -> T) -> RedisStore {
    let start = Instant::now();
    loop {
        match connect().await {
            Ok(store) => return store,
            Err(error) => assert!(start.elapsed() < BOUND, "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
