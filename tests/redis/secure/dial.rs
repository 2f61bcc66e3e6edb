//! TLS over streams that a closure opens: to a server, to a Cluster's nodes, and to what sentinels name.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::TcpStream;
use tollgate::store::RedisStoreBuilder;

use super::tls::{Authority, Files, TlsServer, settings};
use crate::cluster::rig::add_slots;
use crate::stores::{cut, remaining, take, time_to_decide, wait_for};
use crate::support::server::RedisServer;

/// No name server knows it, and certificates are made out for it.
const HOST: &str = "redis.invalid";
/// The port of the URL.
const PORT: u16 = 4711;

/// What was dialed, and from where.
#[derive(Clone, Default)]
struct Dialed(Arc<Mutex<Vec<(String, u16, SocketAddr)>>>);

impl Dialed {
    /// Settings whose closure knows the port of [`HOST`]; other hosts it takes as they are.
    fn settings(&self, authority: &Authority, known: u16) -> RedisStoreBuilder {
        let dialed = self.clone();
        settings().root_certificates(authority.pem()).dial(move |host, port| dialed.clone().dial(host, port, known))
    }

    async fn dial(self, host: String, port: u16, known: u16) -> io::Result<TcpStream> {
        let address = if host == HOST { ("127.0.0.1", known) } else { (&*host, port) };
        let stream = TcpStream::connect(address).await?;
        let from = stream.local_addr()?;
        self.0.lock().expect("nobody panics here").push((host, port, from));
        Ok(stream)
    }

    /// Checks that the URL's host and nodes were dialed and nothing else, and that all clients of a server were, but for
    /// the one that asks and, if there are any, sentinels.
    fn assert_all(&self, nodes: &[u16], server: &RedisServer, others: usize) {
        let dialed = self.0.lock().expect("nobody panics here");
        let names: BTreeSet<_> = dialed.iter().map(|(host, port, _)| (&**host, *port)).collect();
        assert_eq!(names, nodes.iter().map(|port| ("127.0.0.1", *port)).chain([(HOST, PORT)]).collect());
        let clients: String = server.ask(&["CLIENT", "LIST", "TYPE", "normal"]);
        let is_dialed = |line: &&str| dialed.iter().any(|(_, _, from)| line.contains(&format!(" addr={from} ")));
        let (known, unknown): (Vec<_>, Vec<_>) = clients.lines().partition(is_dialed);
        assert!(!known.is_empty() && unknown.len() <= 1 + others, "{unknown:?} were not dialed");
    }
}

fn url() -> String {
    format!("rediss://{HOST}:{PORT}")
}

#[tokio::test]
async fn a_dialed_stream_is_encrypted_for_the_host_of_the_url() {
    let (authority, dialed) = (Authority::new(), Dialed::default());
    let server = TlsServer::start(&authority, &authority.identity(&[HOST], |_| {}), "no");
    let settings = || dialed.settings(&authority, server.port);
    let store = settings().connect(&url()).await.expect("the certificate is for it");
    for round in 0..3 {
        assert_eq!(remaining(&store, "ada").await, 50 - round);
        cut(&server.plain);
        time_to_decide(&store, "ada").await;
    }
    dialed.assert_all(&[], &server.plain, 0);

    let other = settings().connect(&format!("rediss://127.0.0.1:{}", server.port)).await;
    assert!(other.is_err_and(|error| error.is_connection()), "the certificate is not for it");
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn the_nodes_of_a_cluster_are_dialed_as_it_names_them_and_the_first_decisions_of_a_lazy_store_wait_for_that() {
    let (authority, dialed) = (Authority::new(), Dialed::default());
    let plain = RedisServer::start_with_settings(&["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1"]);
    let node = TlsServer::of(plain, &authority, &authority.identity(&[HOST, "127.0.0.1"], |_| {}), "no");
    let port = node.port.to_string();
    let _: String = node.plain.ask(&["CONFIG", "SET", "tls-cluster", "yes"]);
    let _: String = node.plain.ask(&["CONFIG", "SET", "cluster-announce-tls-port", &port]);
    add_slots(&node.plain, 0..16_384);
    wait_for("it is a Cluster", || node.plain.ask::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    let settings = dialed.settings(&authority, node.port).lazy();
    let store = settings.connect_cluster([url()]).await.expect("the URL is one");
    let keys: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    for decided in futures::future::join_all(keys.iter().map(|key| take(&store, key, 1))).await {
        drop(decided.expect("nobody fails as the nodes are not known yet"));
    }
    dialed.assert_all(&[node.port], &node.plain, 0);
}

#[cfg(feature = "sentinel")]
#[tokio::test]
async fn a_sentinel_is_dialed_by_its_url_and_the_primary_as_it_names_that() {
    use crate::sentinel::rig::Sentinel;

    let (authority, dialed) = (Authority::new(), Dialed::default());
    let shown = authority.identity(&[HOST, "127.0.0.1"], |_| {});
    let primary = TlsServer::start(&authority, &shown, "yes");
    let sentinel = Sentinel::start_with(|port, folder| {
        let Files { ca, certificate, key } = Files::write(folder, &authority, &shown);
        format!(
            "port 0\ntls-port {port}\ntls-replication yes\ntls-auth-clients yes\ntls-ca-cert-file {ca}\n\
             tls-cert-file {certificate}\ntls-key-file {key}\nsentinel monitor limits 127.0.0.1 {} 1\n",
            primary.port,
        )
    });
    let client = authority.identity(&["client"], |_| {});
    let settings = || dialed.settings(&authority, sentinel.port);
    let known = || settings().client_certificate(client.certificate.clone(), client.key.clone());
    let store = known().lazy().connect_sentinel([url()], "limits").await.expect("the URL is one");
    // It takes a moment to start.
    time_to_decide(&store, "ada").await;
    let stranger = settings().connect_sentinel([url()], "limits").await;
    assert!(stranger.is_err_and(|error| error.is_connection()), "a certificate is asked for");
    dialed.assert_all(&[primary.port], &primary.plain, 2);
}
