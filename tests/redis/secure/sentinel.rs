//! A primary behind TLS that a sentinel behind TLS names.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process};

use tollgate::{Error, Key, RedisStore};

use super::tls::{Authority, Identity, TlsServer, remaining_of, settings};

const BOUND: Duration = Duration::from_secs(20);

/// A sentinel that speaks TLS only, stopped when dropped.
pub(crate) struct Sentinel {
    process: Child,
    pub(crate) port: u16,
    folder: PathBuf,
}

impl Sentinel {
    /// A sentinel that shows what the primary shows, and asks clients for a certificate.
    pub(crate) fn of(primary: &TlsServer, authority: &Authority, shown: &Identity) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a loopback port is free");
        let port = listener.local_addr().expect("it has an address").port();
        drop(listener);
        let folder = env::temp_dir().join(format!("tollgate-test-sentinel-{}-{port}", process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let file = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).expect("the temporary folder can be written");
            path.display().to_string()
        };
        let (ca, certificate) = (file("ca.pem", &authority.pem()), file("server.pem", &shown.certificate));
        let key = file("server.key", &shown.key);
        let config = file(
            "sentinel.conf",
            &format!(
                "port 0\ntls-port {port}\nbind 127.0.0.1\ndir {}\ntls-replication yes\ntls-auth-clients yes\n\
                 tls-ca-cert-file {ca}\ntls-cert-file {certificate}\ntls-key-file {key}\n\
                 sentinel monitor limits 127.0.0.1 {} 1\n",
                folder.display(),
                primary.port,
            ),
        );
        let mut sentinel = Command::new("redis-server");
        sentinel.arg(config).arg("--sentinel").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { process: sentinel.spawn().expect("the primary was started, so a sentinel can be"), port, folder }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test]
async fn roots_and_a_client_s_certificate_reach_the_primary_that_a_sentinel_names() {
    let authority = Authority::new();
    let shown = authority.identity(&["127.0.0.1"], |_| {});
    let primary = TlsServer::start(&authority, &shown, "yes");
    let sentinel = Sentinel::of(&primary, &authority, &shown);
    let url = format!("rediss://127.0.0.1:{}", sentinel.port);
    let client = authority.identity(&["client"], |_| {});
    let store = connected(|| {
        let trusting = settings().root_certificates(authority.pem());
        trusting.client_certificate(client.certificate.clone(), client.key.clone()).connect_sentinel([&url], "limits")
    });
    let store = store.await;
    assert_eq!(remaining_of(&store, Key::new("key", "ada"), 1).await.unwrap(), 49);
    assert_eq!(primary.plain.keys().len(), 1);

    let stranger = settings().root_certificates(authority.pem()).connect_sentinel([&url], "limits").await;
    assert!(stranger.is_err_and(|error| error.is_connection()), "a certificate is asked for");
    let suspicious = settings().connect_sentinel([&url], "limits").await;
    assert!(suspicious.is_err_and(|error| error.is_connection()), "the system's roots do not vouch for it");
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
