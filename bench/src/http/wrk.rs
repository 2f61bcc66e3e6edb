//! Load by `wrk`.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use super::app::HEADER;

/// What one run of `wrk` saw.
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) per_second: f64,
    /// In milliseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Responses with a status above 399.
    pub(super) refused: u64,
    /// Connections that failed and requests that ran out of time.
    pub(super) failed: u64,
}

/// A script for `wrk` that draws keys uniformly; its file is removed with it.
pub(super) struct Script(PathBuf);

impl Script {
    pub(super) fn new(name: &str, keys: u32) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("tollgate-bench-{}-{name}.lua", std::process::id()));
        fs::write(&path, text(keys)).map_err(|fault| format!("{}: {fault}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn run(&self, address: SocketAddr, connections: u32, seconds: u32) -> Result<Load, String> {
        let output = Command::new("wrk")
            .args(["--threads", &connections.min(2).to_string(), "--connections", &connections.to_string()])
            .args(["--duration", &format!("{seconds}s"), "--script"])
            .arg(&self.0)
            .arg(format!("http://{address}/"))
            .output()
            .map_err(|fault| format!("wrk cannot be started: {fault}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        parse(&text).ok_or_else(|| format!("wrk said\n{text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub(super) fn check_installed() -> Result<(), String> {
    let found = Command::new("wrk").arg("--version").output().is_ok();
    found.then_some(()).ok_or_else(|| "wrk is not installed: apt-get install wrk".to_owned())
}

/// Requests are written by hand, as `wrk.format` would cost the machine as much as a request does.
/// Every thread has its own seed, or all would draw the same keys.
fn text(keys: u32) -> String {
    format!(
        r#"local threads = 0
function setup(thread)
  threads = threads + 1
  thread:set("seed", os.time() * 16 + threads)
end
function init()
  math.randomseed(seed)
end
function request()
  return "GET / HTTP/1.1\r\nHost: bench\r\n{HEADER}: key-" .. (100000 + math.random(0, {last})) .. "\r\n\r\n"
end
function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.timeout
  print(string.format("result %d %d %d %d %d %d", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), errors.status, failed))
end
"#,
        last = keys - 1
    )
}

fn parse(output: &str) -> Option<Load> {
    let line = output.lines().find_map(|line| line.strip_prefix("result "))?;
    let numbers: Vec<u64> = line.split(' ').map_while(|number| number.parse().ok()).collect();
    let &[requests, micros, p50, p99, refused, failed] = &numbers[..] else { return None };
    let millis = |micros: u64| micros as f64 / 1e3;
    Some(Load {
        requests,
        per_second: requests as f64 / (micros as f64 / 1e6),
        p50: millis(p50),
        p99: millis(p99),
        refused,
        failed,
    })
}
