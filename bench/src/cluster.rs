//! A Cluster of three primaries.

use std::path::PathBuf;
use std::time::Duration;

use tollgate::deadpool_redis::redis::cmd;

use crate::server::{Server, free_port};

const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

pub(crate) struct Cluster {
    pub(crate) primaries: Vec<Server>,
    /// Where they write what they know of each other.
    folder: PathBuf,
}

impl Cluster {
    /// Starts the primaries, and waits until each knows all slots.
    pub(crate) async fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("tollgate-bench-{}-{}", std::process::id(), free_port()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let mut cluster = Self { primaries: Vec::new(), folder };
        let first_bus = free_port();
        for place in 0..PRIMARIES {
            let bus = if place == 0 { first_bus } else { free_port() };
            let server = primary(&cluster.folder.to_string_lossy(), place, bus).await;
            if let Some(first) = cluster.primaries.first() {
                meet(&server, first.port(), first_bus).await;
            }
            cluster.primaries.push(server);
        }
        for server in &cluster.primaries {
            wait_until_whole(server).await;
        }
        cluster
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.primaries.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts the primary of a third of the slots.
async fn primary(folder: &str, place: usize, bus: u16) -> Server {
    let (bus, file) = (bus.to_string(), format!("nodes-{place}.conf"));
    let settings =
        ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-config-file", &file, "--dir", folder];
    let server = Server::start_with(&settings).await;
    let mut connection = server.connection().await;
    let (first, last) = (SLOTS * place / PRIMARIES, SLOTS * (place + 1) / PRIMARIES - 1);
    let mut slots = cmd("CLUSTER");
    let () = slots.arg("ADDSLOTSRANGE").arg(first).arg(last).query_async(&mut connection).await.expect("they are free");
    let mut epoch = cmd("CLUSTER");
    let () = epoch.arg("SET-CONFIG-EPOCH").arg(place + 1).query_async(&mut connection).await.expect("the node is new");
    server
}

async fn meet(server: &Server, port: u16, bus: u16) {
    let (mut connection, mut meet) = (server.connection().await, cmd("CLUSTER"));
    meet.arg("MEET").arg("127.0.0.1").arg(port).arg(bus);
    let () = meet.query_async(&mut connection).await.expect("it is reachable");
}

async fn wait_until_whole(server: &Server) {
    let mut connection = server.connection().await;
    for _ in 0..200 {
        let info: String = cmd("CLUSTER").arg("INFO").query_async(&mut connection).await.expect("INFO answers");
        if info.contains("cluster_state:ok") && info.contains(&format!("cluster_size:{PRIMARIES}")) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the Cluster does not form");
}
