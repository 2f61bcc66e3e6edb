//! A Redis Cluster behind TLS.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, iter, process, thread};

use super::tls::Authority;
use crate::support::server::RedisServer;

const BOUND: Duration = Duration::from_secs(20);

/// A node that speaks TLS to clients and to other nodes, and plain text to this test.
pub(crate) struct Node {
    pub(crate) plain: RedisServer,
    pub(crate) port: u16,
}

/// Two primaries that share the slots and show a certificate for some hosts, and the authority that vouches for them.
pub(crate) fn start(hosts: &[&str]) -> (Vec<Node>, Authority) {
    static STARTED: AtomicU16 = AtomicU16::new(0);
    let authority = Authority::new();
    let shown = authority.identity(hosts, |_| {});
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let folder = env::temp_dir().join(format!("tollgate-test-tls-{}-{number}", process::id()));
    fs::create_dir_all(&folder).expect("the temporary folder can be written");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("the temporary folder can be written");
        path.to_str().expect("its name is text").to_owned()
    };
    let (ca, certificate) = (file("ca.pem", &authority.pem()), file("node.pem", &shown.certificate));
    let files =
        ["--tls-ca-cert-file", &ca, "--tls-cert-file", &certificate, "--tls-key-file", &file("node.key", &shown.key)];
    let nodes: Vec<_> = free_ports().take(2).map(|port| Node::start(port, &files)).collect();
    for (node, slots) in nodes.iter().zip([["0", "8191"], ["8192", "16383"]]) {
        let _: String = node.plain.ask(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]);
    }
    let _: String = nodes[1].plain.ask(&["CLUSTER", "SET-CONFIG-EPOCH", "2"]);
    let _: String = nodes[0].plain.ask(&["CLUSTER", "MEET", "127.0.0.1", &nodes[1].port.to_string()]);
    nodes.iter().for_each(Node::wait_until_whole);
    fs::remove_dir_all(folder).expect("it is this test's own");
    (nodes, authority)
}

impl Node {
    fn start(port: u16, files: &[&str]) -> Self {
        let tls = ["--tls-port", &port.to_string(), "--tls-cluster", "yes", "--tls-auth-clients", "no"];
        let settings = [&["--cluster-enabled", "yes"], &tls[..], files].concat();
        Self { plain: RedisServer::start_with_settings(&settings), port }
    }

    fn wait_until_whole(&self) {
        let start = Instant::now();
        let is_whole = |info: String| info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384\r");
        while !is_whole(self.plain.ask(&["CLUSTER", "INFO"])) {
            assert!(start.elapsed() < BOUND, "the nodes have not met");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Ports that are free, as are those of the nodes' bus, 10,000 above; none is given twice.
fn free_ports() -> impl Iterator<Item = u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 12_000 + u16::try_from(process::id() % 7_000).expect("a remainder of a u16 is one");
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let ports = iter::repeat_with(move || first + NEXT.fetch_add(1, Ordering::Relaxed) % 1_000);
    ports.take(1_000).filter(move |port| is_free(*port) && is_free(port + 10_000))
}
