//! What is read of the server and of its Redis.

use std::fmt;
use std::net::SocketAddr;

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::cmd;

use super::app::TASKS;
use super::client::Client;
use super::load::Load;
use super::process::Process;
use crate::server::Server;

#[derive(Clone, Copy)]
pub(super) struct Reading {
    requests: u64,
    failed: u64,
    pub(super) memory_kb: u64,
    pub(super) files: u64,
    pub(super) tasks: u64,
    /// Connections to Redis, but for the one that asks.
    pub(super) connections: u64,
    pub(super) redis_kb: u64,
}

impl Reading {
    pub(super) const HEADER: &str = "| requests | failed | RSS, kB | open files | tasks | Redis connections | Redis memory, kB |\n\
         | --- | --- | --- | --- | --- | --- | --- |";

    pub(super) async fn take(
        redis: &Server,
        connection: &mut MultiplexedConnection,
        process: &Process,
        address: SocketAddr,
        load: &Load,
    ) -> Self {
        let tasks = Client::new(address).get(TASKS, "").await.and_then(|(_, tasks)| tasks.parse().ok());
        let reading = Self {
            requests: load.requests(),
            failed: load.failed(),
            memory_kb: process.memory_kb(),
            files: process.files(),
            tasks: tasks.expect("the server answers"),
            connections: connections(connection).await - 1,
            redis_kb: used_kb(redis, connection).await,
        };
        let kill = ["KILL", "TYPE", "normal", "SKIPME", "yes"];
        let _: i64 = cmd("CLIENT").arg(&kill).query_async(connection).await.expect("our own server obeys");
        reading
    }
}

async fn connections(connection: &mut MultiplexedConnection) -> u64 {
    let info: String = cmd("INFO").arg("clients").query_async(connection).await.expect("INFO answers");
    let clients = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
    clients.and_then(|clients| clients.trim().parse().ok()).expect("connected_clients is there")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are no fraction")]
async fn used_kb(redis: &Server, connection: &mut MultiplexedConnection) -> u64 {
    redis.used_memory(connection).await as u64 / 1_024
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, failed, memory_kb, files, tasks, connections, redis_kb } = self;
        write!(f, "| {requests} | {failed} | {memory_kb} | {files} | {tasks} | {connections} | {redis_kb} |")
    }
}
