//! TLS over streams that a closure opens: to a server, to a Cluster's nodes, and to what sentinels name.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::net::TcpStream;
use tollgate::Key;
use tollgate::store::RedisStoreBuilder;

use super::tls::{Authority, TlsServer, remaining_of, settings};
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

    fn names(&self) -> BTreeSet<(String, u16)> {
        let dialed = self.0.lock().expect("nobody panics here");
        dialed.iter().map(|(host, port, _)| (host.clone(), *port)).collect()
    }

    /// Checks that a server has clients, and none that was not dialed but for the one that asks and nodes.
    fn assert_all_of(&self, server: &RedisServer) {
        let clients: String = server.ask(&["CLIENT", "LIST", "TYPE", "normal"]);
        let dialed = self.0.lock().expect("nobody panics here");
        let is_dialed = |line: &&str| dialed.iter().any(|(_, _, from)| line.contains(&format!(" addr={from} ")));
        let (known, others): (Vec<_>, Vec<_>) = clients.lines().partition(is_dialed);
        assert!(!known.is_empty() && others.len() == 1, "{others:?} were not dialed");
    }
}

fn key(number: usize) -> Key {
    Key::new("key", number.to_string())
}

#[tokio::test]
async fn a_dialed_stream_is_encrypted_for_the_host_of_the_url() {
    let (authority, dialed) = (Authority::new(), Dialed::default());
    let server = TlsServer::start(&authority, &authority.identity(&[HOST], |_| {}), "no");
    let settings = || dialed.settings(&authority, server.port);
    let store = settings().connect(&format!("rediss://{HOST}:{PORT}")).await.expect("the certificate is for it");
    assert_eq!(remaining_of(&store, key(0), 1).await.expect("it is connected"), 49);
    assert_eq!(dialed.names(), BTreeSet::from([(HOST.to_owned(), PORT)]));
    dialed.assert_all_of(&server.plain);

    let other = settings().connect(&format!("rediss://127.0.0.1:{}", server.port)).await;
    assert!(other.is_err_and(|error| error.is_connection()), "the certificate is not for it");
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn the_nodes_of_a_cluster_are_dialed_as_it_names_them() {
    let ((nodes, authority), dialed) = (super::cluster::start(&[HOST, "127.0.0.1"]), Dialed::default());
    let settings = dialed.settings(&authority, nodes[0].port);
    let store = settings.connect_cluster([format!("rediss://{HOST}:{PORT}")]).await.expect("a node is known");
    for number in 0..20 {
        assert_eq!(remaining_of(&store, key(number), 1).await.expect("it is connected"), 49);
    }
    let named = nodes.iter().map(|node| ("127.0.0.1".to_owned(), node.port));
    let asked: BTreeSet<_> = named.chain([(HOST.to_owned(), PORT)]).collect();
    assert_eq!(dialed.names(), asked);
    for node in &nodes {
        dialed.assert_all_of(&node.plain);
    }
}

#[cfg(feature = "sentinel")]
#[tokio::test]
async fn a_sentinel_is_dialed_by_its_url_and_the_primary_as_it_names_that() {
    let (authority, dialed) = (Authority::new(), Dialed::default());
    let shown = authority.identity(&[HOST, "127.0.0.1"], |_| {});
    let primary = TlsServer::start(&authority, &shown, "yes");
    let sentinel = super::sentinel::sentinel_of(&primary, &authority, &shown);
    let (client, url) = (authority.identity(&["client"], |_| {}), format!("rediss://{HOST}:{PORT}"));
    let store = super::sentinel::connected(|| {
        let settings = dialed.settings(&authority, sentinel.port);
        settings.client_certificate(client.certificate.clone(), client.key.clone()).connect_sentinel([&url], "limits")
    });
    let store = store.await;
    let stranger = dialed.settings(&authority, sentinel.port).connect_sentinel([&url], "limits").await;
    assert!(stranger.is_err_and(|error| error.is_connection()), "a certificate is asked for");
    assert_eq!(remaining_of(&store, key(0), 1).await.expect("it is connected"), 49);
    assert_eq!(dialed.names(), BTreeSet::from([(HOST.to_owned(), PORT), ("127.0.0.1".to_owned(), primary.port)]));
    let clients: String = primary.plain.ask(&["CLIENT", "LIST", "TYPE", "normal"]);
    assert!(clients.contains("cmd=eval"), "{clients}");
}
