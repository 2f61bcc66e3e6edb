//! What the example `opentelemetry` exports, in a real collector.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::harness::{PATIENCE, Server};

/// Prints what it receives to a file.
struct Collector {
    process: Child,
    folder: PathBuf,
    port: u16,
}

type Attributes = BTreeMap<String, String>;

impl Collector {
    fn start() -> Self {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let [port, other] = listeners.map(|listener| listener.local_addr().expect("it is bound").port());
        let folder = std::env::temp_dir().join(format!("tollgate-collector-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder can be written");
        let output = File::create(folder.join("output")).expect("it can be written");
        let log = output.try_clone().expect("a file can be shared");
        let mut command = Command::new(target().join("tools/rotel/rotel/rotel-agent"));
        command.args(["start", "--exporter", "blackhole", "--debug-log-verbosity", "detailed"]);
        command.args(["--debug-log", "traces", "--debug-log", "metrics"]);
        command.arg(format!("--otlp-grpc-endpoint=127.0.0.1:{port}"));
        command.arg(format!("--otlp-http-endpoint=127.0.0.1:{other}"));
        command.arg("--pid-file").arg(folder.join("pid")).arg("--log-file").arg(folder.join("log"));
        let process = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn();
        let collector = Self { process: process.expect("rotel can be started: scripts/tools rotel"), folder, port };
        until(|| TcpStream::connect(("127.0.0.1", port)).ok().ok_or_else(|| collector.output()));
        collector
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.folder.join("output")).unwrap_or_default()
    }

    /// The attributes of each span.
    fn spans(&self) -> Vec<Attributes> {
        self.output().split("\nSpan #").skip(1).map(attributes).collect()
    }

    /// The values of a metric's series that are not 0.
    fn counts(&self, name: &str) -> Vec<(Attributes, u64)> {
        let (output, name) = (self.output(), format!("-> Name: {name}\n"));
        let metric = output.split("\nMetric #").find(|metric| metric.contains(&name)).unwrap_or_default();
        let points = metric.split("\nNumberDataPoints #").skip(1).map(|point| {
            let value = point.lines().find_map(|line| line.strip_prefix("Value: ")).expect("a point has a value");
            (attributes(point), value.parse().expect("counters are integers"))
        });
        points.filter(|(_, value)| *value > 0).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// `     -> name: Type(value)`
fn attributes(text: &str) -> Attributes {
    let lines = text.lines().take_while(|line| !line.starts_with("Metric #") && !line.starts_with("Resource"));
    let pairs = lines.filter_map(|line| line.trim_start().strip_prefix("-> ")?.split_once(": "));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Attributes {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.ancestors().nth(3).expect("tests are in target/<profile>/deps").to_owned()
}

fn until<T>(found: impl Fn() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match found() {
            Ok(found) => return found,
            Err(missing) => assert!(Instant::now() < deadline, "{missing}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The example, whose metrics leave only when it ends.
fn example(collector: &Collector) -> Server {
    let test = std::env::current_exe().expect("a test has a path");
    let built = test.ancestors().nth(2).map(Path::to_owned).expect("tests are in target/<profile>/deps");
    let mut command = Command::new(built.join("tollgate-opentelemetry"));
    command.arg("127.0.0.1:0").env("OTEL_METRIC_EXPORT_INTERVAL", "600000");
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", collector.port));
    Server::run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

#[tokio::test]
#[ignore = "slow: scripts/slow runs it"]
async fn a_collector_has_the_spans_and_metrics_of_all_requests_once_the_service_has_ended() {
    let collector = Collector::start();
    let server = example(&collector);
    for sent in 1..=7 {
        let status = server.status("/", &[]).await;
        assert_eq!(status, if sent <= 5 { 200 } else { 429 }, "{sent}");
    }
    server.signal("INT");
    server.ends_well().await;
    until(|| {
        let is_complete = collector.spans().len() == 7 && !collector.counts("tollgate_policy_denials_total").is_empty();
        is_complete.then_some(()).ok_or_else(|| collector.output())
    });

    let mut spans = collector.spans();
    for span in &mut spans {
        span.retain(|name, _| name.starts_with("ratelimit.") || name == "http.response.status_code");
    }
    let span = |allowed: &str, left: &str, status: &str| {
        pairs(&[
            ("http.response.status_code", status),
            ("ratelimit.allowed", allowed),
            ("ratelimit.limit", "Int(5)"),
            ("ratelimit.policy", "Str(ip)"),
            ("ratelimit.remaining", left),
            ("ratelimit.source", "Str(store)"),
        ])
    };
    let left = ["Int(0)", "Int(1)", "Int(2)", "Int(3)", "Int(4)"];
    let mut expected: Vec<Attributes> = left.map(|left| span("Bool(true)", left, "Int(200)")).into();
    expected.extend([(); 2].map(|()| span("Bool(false)", "Int(0)", "Int(429)")));
    // A span may end after the next request has begun.
    spans.sort();
    expected.sort();
    assert_eq!(spans, expected);
    let mut decisions = collector.counts("tollgate_decisions_total");
    decisions.sort();
    let decided = |verdict| pairs(&[("source", "Str(store)"), ("verdict", verdict)]);
    assert_eq!(decisions, [(decided("Str(allowed)"), 5), (decided("Str(denied)"), 2)]);
    let refused = pairs(&[("mode", "Str(enforce)"), ("policy", "Str(ip)")]);
    assert_eq!(collector.counts("tollgate_policy_denials_total"), [(refused, 2)]);
}

#[test]
fn the_page_shows_the_code_of_the_example() {
    let page = include_str!("../../../docs/opentelemetry.md");
    let (source, manifest) = (
        include_str!("../../../examples/opentelemetry/src/main.rs"),
        include_str!("../../../examples/opentelemetry/Cargo.toml"),
    );
    for (fence, shown_in) in [("```rust\n", source), ("```toml\n", manifest)] {
        let shown = page.split(fence).skip(1).filter_map(|rest| rest.split("```").next());
        let lines: Vec<&str> = shown.flat_map(str::lines).filter(|line| !line.starts_with("tollgate =")).collect();
        assert!(!lines.is_empty(), "{fence}");
        for line in lines {
            assert!(shown_in.lines().any(|of_example| of_example == line), "the example does not contain {line}");
        }
    }
}
