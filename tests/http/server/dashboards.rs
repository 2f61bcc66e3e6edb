//! The dashboard and the alerts of tollgate-admin, in a real Prometheus that scrapes the example server, and with series
//! of `alerts.yml`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use http::Request;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::harness::Server;
use crate::rig::Text;
use crate::sockets::Http;
use crate::support::server::RedisServer;

/// Scrapes, evaluations, and the 5 s for which an outage has to last.
const PATIENCE: Duration = Duration::from_secs(40);

struct Prometheus {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Prometheus {
    fn start(target: &str) -> Self {
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let folder = std::env::temp_dir().join(format!("tollgate-prometheus-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let rules = dashboards().join("rules.yml");
        let settings = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [\"{}\"]\nscrape_configs:\n  - job_name: \
             tollgate\n    static_configs: [{{targets: [{target:?}]}}]\n",
            rules.display()
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, settings).expect("it can be written");
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self { process: process.expect("prometheus can be started: scripts/tools prometheus"), folder, port }
    }

    /// `None` while it does not answer.
    async fn get(&self, path: &str) -> Option<Value> {
        let uri = format!("http://127.0.0.1:{}{path}", self.port);
        std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let request = Request::get(uri).body(Text::default()).expect("a request");
        let response = Http::new().request(request).await;
        serde_json::from_slice(response.body()).ok()
    }

    async fn query(&self, expression: &str) -> Option<Value> {
        let path = format!("/api/v1/query?query={}", utf8_percent_encode(expression, NON_ALPHANUMERIC));
        self.get(&path).await
    }

    /// The alerts that fire. Others may be pending: the test has a client denied that was not an hour ago.
    async fn alerts(&self) -> Vec<String> {
        let Some(found) = self.get("/api/v1/alerts").await else { return Vec::new() };
        let alerts = found["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn dashboards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/tollgate-admin/dashboards")
}

/// The expressions of all panels.
fn expressions() -> Vec<String> {
    let text = std::fs::read_to_string(dashboards().join("grafana.json")).expect("it is there");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("a list").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("a list").clone());
    targets.map(|target| target["expr"].as_str().expect("a text").to_owned()).collect()
}

/// Sends requests until what is looked for is there.
async fn until<T>(server: &Server, what: &str, found: impl AsyncFn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        for _ in 0..20 {
            server.status("/search", &[("x-api-key", "ada")]).await;
        }
        if let Some(found) = found().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
    }
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it, and installs Prometheus"]
async fn every_query_of_the_dashboard_has_data_and_an_outage_raises_its_alert() {
    let mut redis = RedisServer::start();
    let server = Server::start(&["--redis", &redis.url()]);
    let prometheus = Prometheus::start(server.uri("").trim_start_matches("http://"));
    // These have data only after a failure, or with policies that the example does not have.
    let later =
        |expression: &str| ["bans", "store_failures", "slots", "shadow"].iter().any(|word| expression.contains(word));
    for expression in expressions() {
        until(&server, &expression, async || {
            let found = prometheus.query(&expression).await?;
            assert_eq!(found["status"], "success", "{expression}: {found}");
            (later(&expression) || !found["data"]["result"].as_array()?.is_empty()).then_some(())
        })
        .await;
    }
    assert_eq!(prometheus.alerts().await, [""; 0], "nothing is wrong");
    redis.kill();
    until(&server, "the alert fires", async || {
        let alerts = prometheus.alerts().await;
        alerts.iter().any(|alert| alert == "TollgateStoreUnavailable").then_some(())
    })
    .await;
    let failures = prometheus.query("sum(rate(tollgate_store_failures_total[1m])) > 0").await.expect("it answers");
    assert!(failures["data"]["result"].as_array().is_some_and(|found| !found.is_empty()), "{failures}");
    redis.restart();
    until(&server, "the alert ends", async || prometheus.alerts().await.is_empty().then_some(())).await;
}

#[test]
#[ignore = "slow: scripts/slow runs it, and installs Prometheus"]
fn alerts_fire_for_what_they_name_and_not_once_for_each_process() {
    let rows = Path::new(env!("CARGO_MANIFEST_DIR")).join("http/server/alerts.yml");
    let tested = Command::new("promtool").args(["test", "rules"]).arg(rows).output();
    let tested = tested.expect("promtool can be started: scripts/tools prometheus");
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stderr));
}
