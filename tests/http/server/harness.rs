//! A running example server, and requests to it.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};

use crate::rig::Text;
use crate::sockets::Http;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An example server on a port of its own, killed when dropped.
pub(crate) struct Server {
    process: Child,
    /// What it printed when it was ready.
    pub(crate) ready: String,
    address: String,
    log: Arc<Mutex<String>>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::run(&mut command(arguments))
    }

    pub(crate) fn run(command: &mut Command) -> Self {
        let mut process = command.spawn().expect("the server can be started");
        let stdout = BufReader::new(process.stdout.take().expect("its output is piped"));
        let stderr = BufReader::new(process.stderr.take().expect("its log is piped"));
        // A server whose log nobody reads stops when the pipe is full.
        let log = Arc::<Mutex<String>>::default();
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *lines.lock().expect("no reader panics") += &(line + "\n");
            }
        });
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let ready = lines.recv_timeout(PATIENCE).expect("the server says that it is ready");
        let address = ready.split_once("http://").and_then(|(_, rest)| rest.split_once(',')).expect("an address").0;
        Self { process, address: address.to_owned(), ready, log }
    }

    pub(crate) fn uri(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Bytes> {
        let request = Request::builder().method(method).uri(self.uri(path));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        Http::new().request(request.body(Text::from(body.into())).expect("the request is one")).await
    }

    /// The status of `GET path`.
    pub(crate) async fn status(&self, path: &str, headers: &[(&str, &str)]) -> u16 {
        self.ask(Method::GET, path, headers, "").await.status().as_u16()
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, String) {
        let response = self.ask(Method::GET, path, &[], "").await;
        (response.status(), String::from_utf8(response.into_body().into()).expect("a text"))
    }

    pub(crate) fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh runs").success());
    }

    /// Waits for its end, which is a success.
    pub(crate) async fn ends_well(mut self) {
        let ends = move || assert!(ended(&mut self.process).success(), "{}", self.log());
        tokio::task::spawn_blocking(ends).await.expect("it ends");
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no reader panics").clone()
    }

    /// Waits until that many lines of its log hold `part`.
    pub(crate) async fn logs(&self, part: &str, lines: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.log().lines().filter(|line| line.contains(part)).count() < lines {
            assert!(Instant::now() < deadline, "{part:?} is not logged {lines} times: {}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The example next to this test, as cargo builds it.
pub(crate) fn command(arguments: &[&str]) -> Command {
    command_of("server", arguments)
}

pub(crate) fn command_of(example: &str, arguments: &[&str]) -> Command {
    let test = std::env::current_exe().expect("a test has a path");
    let built = test.ancestors().nth(2).expect("tests are in target/<profile>/deps").join("examples").join(example);
    assert!(built.exists(), "{} is not there: run cargo build --example {example}", built.display());
    let mut command = Command::new(built);
    command.args(["--addr", "127.0.0.1:0"]).args(arguments);
    command.env_remove("REDIS_URL").env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn ended(process: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = process.try_wait().expect("a child can be asked") {
            return status;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = process.kill();
    panic!("the server did not end in {PATIENCE:?}");
}

/// A config file, gone when dropped.
pub(crate) struct ConfigFile(PathBuf);

impl ConfigFile {
    pub(crate) fn new(text: &str) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tollgate-{}-{}.toml", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("the temporary folder can be written");
        Self(path)
    }

    /// Replaces the file at once, so that no half of it is ever read.
    pub(crate) fn replace(&self, text: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, text).expect("the temporary folder can be written");
        std::fs::rename(&new, &self.0).expect("the temporary folder can be written");
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("the temporary folder is UTF-8")
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
