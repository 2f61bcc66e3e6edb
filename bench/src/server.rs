//! A `redis-server` of our own on loopback.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tollgate::deadpool_redis::redis::aio::MultiplexedConnection;
use tollgate::deadpool_redis::redis::{AsyncConnectionConfig, Client, cmd};
use tollgate::deadpool_redis::{Manager, Pool, Runtime};

/// What calls our scripts.
pub(crate) const SCRIPTS: [&str; 2] = ["evalsha", "fcall"];

/// Connections of a pool.
const POOL_SIZE: usize = 16;

pub(crate) struct Server {
    child: Child,
    port: u16,
    url: String,
}

impl Server {
    /// Starts a server on a free port and waits until it answers.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts one with further settings.
    pub(crate) async fn start_with(settings: &[&str]) -> Self {
        let port = free_port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed: apt-get install redis-server");
        let server = Self { child, port, url: format!("redis://127.0.0.1:{port}") };
        for _ in 0..100 {
            if Client::open(&*server.url).expect("a URL").get_multiplexed_async_connection().await.is_ok() {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("redis-server does not answer");
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let client = Client::open(&*self.url).expect("a URL");
        client.get_multiplexed_async_connection_with_config(&patient()).await.expect("the server answers")
    }

    /// Calls and microseconds of these commands together, since the statistics were last reset.
    pub(crate) async fn command_stats(&self, connection: &mut MultiplexedConnection, commands: &[&str]) -> (f64, f64) {
        let info: String = cmd("INFO").arg("commandstats").query_async(connection).await.expect("INFO answers");
        let stats = commands.iter().filter_map(|command| stats_of(&info, command));
        stats.fold((0.0, 0.0), |(calls, micros), stats| (calls + stats.0, micros + stats.1))
    }

    /// Microseconds of the median call of these commands since the statistics were last reset; of
    /// several, that of the slowest.
    pub(crate) async fn median_call(&self, connection: &mut MultiplexedConnection, commands: &[&str]) -> f64 {
        let info: String = cmd("INFO").arg("latencystats").query_async(connection).await.expect("INFO answers");
        let medians = commands.iter().filter_map(|command| {
            let prefix = format!("latency_percentiles_usec_{command}:");
            field(info.lines().find_map(|line| line.strip_prefix(&prefix))?, "p50=")
        });
        medians.reduce(f64::max).expect("a command was called")
    }

    pub(crate) async fn reset_stats(&self, connection: &mut MultiplexedConnection) {
        let () = cmd("CONFIG").arg("RESETSTAT").query_async(connection).await.expect("RESETSTAT answers");
    }

    pub(crate) async fn used_memory(&self, connection: &mut MultiplexedConnection) -> f64 {
        let info: String = cmd("INFO").arg("memory").query_async(connection).await.expect("INFO answers");
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        used.and_then(|used| used.trim().parse().ok()).expect("used_memory is there")
    }

    /// Seconds of processor time that the server has used.
    pub(crate) async fn used_cpu(&self, connection: &mut MultiplexedConnection) -> f64 {
        let info: String = cmd("INFO").arg("cpu").query_async(connection).await.expect("INFO answers");
        let used = |name| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        let parts = ["used_cpu_user:", "used_cpu_sys:"].map(|name| used(name).expect("processor time is there"));
        parts.iter().sum()
    }

    /// How many keys the server holds.
    pub(crate) async fn size(&self, connection: &mut MultiplexedConnection) -> usize {
        cmd("DBSIZE").query_async(connection).await.expect("DBSIZE answers")
    }

    pub(crate) async fn flush(&self, connection: &mut MultiplexedConnection) {
        let () = cmd("FLUSHALL").query_async(connection).await.expect("our own server is flushed");
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port()
}

/// A pool as an application makes one.
pub(crate) fn pool(url: &str) -> Pool {
    let manager = Manager::new_with_config(url, patient()).expect("a URL");
    Pool::builder(manager).max_size(POOL_SIZE).runtime(Runtime::Tokio1).build().expect("a pool")
}

/// Settings of a connection with which a noisy machine is no timeout.
pub(crate) fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(5)))
}

/// Calls and microseconds of a command; `None` if it was not called.
fn stats_of(info: &str, command: &str) -> Option<(f64, f64)> {
    let prefix = format!("cmdstat_{command}:");
    let line = info.lines().find_map(|line| line.strip_prefix(&prefix))?;
    Some((field(line, "calls=")?, field(line, "usec=")?))
}

fn field(line: &str, name: &str) -> Option<f64> {
    line.split(',').find_map(|field| field.strip_prefix(name)?.parse().ok())
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
