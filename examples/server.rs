//! A small HTTP server with limits, in memory or in Redis:
//!
//! ```text
//! cargo run --example server -- [--addr ADDRESS] [--redis URL] [--config FILE]
//! ```

use std::error::Error;
use std::future::Future;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::extract::{FromRequest, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use serde::Deserialize;
use tokio::net::TcpListener;
use tollgate::config::Config;
use tollgate::{MemoryStore, Quota, RateLimitLayer, RedisStore, Store, key};
use tracing_subscriber::EnvFilter;

type BoxError = Box<dyn Error + Send + Sync>;

const USAGE: &str = "usage: server [--addr ADDRESS] [--redis URL] [--config FILE]";
const ADDRESS: &str = "127.0.0.1:3000";
const SLOWEST: Duration = Duration::from_secs(60);

/// How long requests may take that are under way when the server is told to stop.
const GRACE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    logs.with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"))).init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", in_one_line(&*error));
            ExitCode::from(2)
        }
    }
}

async fn run() -> Result<(), BoxError> {
    let options = Options::read(std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()))?;
    let config = options.config.as_deref().map(Config::from_file).transpose()?;
    let (layer, store) = match &options.redis {
        Some(url) => (limits(RedisStore::connect(url).await?, config), "redis"),
        None => (limits(MemoryStore::new(), config), "memory"),
    };
    let stop = stop_signal()?;
    let listener = TcpListener::bind(&options.addr).await;
    let listener =
        listener.map_err(|error| format!("cannot listen on {:?}: {error}: give --addr HOST:PORT", options.addr))?;
    let address = listener.local_addr()?;
    writeln!(std::io::stdout(), "listening on http://{address}, store: {store}")?;
    tracing::info!(%address, store, "ready");
    serve(listener, app(layer), stop).await
}

/// What the command line and the environment say.
struct Options {
    addr: String,
    redis: Option<String>,
    config: Option<String>,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, BoxError> {
        let redis = std::env::var("REDIS_URL").ok().filter(|url| !url.is_empty());
        let mut options = Self { addr: ADDRESS.to_owned(), redis, config: None };
        while let Some(argument) = arguments.next() {
            let (flag, value) = match argument.split_once('=') {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (&*argument, arguments.next()),
            };
            match (flag, value) {
                ("--addr", Some(value)) => options.addr = value,
                ("--redis", value @ Some(_)) => options.redis = value,
                ("--config", value @ Some(_)) => options.config = value,
                ("--addr" | "--redis" | "--config", None) => {
                    return Err(format!("{flag} lacks a value: {USAGE}").into());
                }
                _ => return Err(format!("{flag:?} is no flag: {USAGE}").into()),
            }
        }
        Ok(options)
    }
}

/// The limits of the file, or a composite of three: few requests an address, so that two hands full
/// of them show a refusal.
fn limits(store: impl Store, config: Option<Config>) -> RateLimitLayer {
    let layer = RateLimitLayer::composite(store);
    let Some(config) = config else {
        return layer
            .ip(Quota::per_minute(10))
            .user(Quota::per_hour(1_000).burst(50), key::header("x-api-key"))
            .route(Quota::fixed_window(100, Duration::from_secs(1)));
    };
    if config.policies().is_empty() {
        tracing::warn!("the config file has no policies: nothing is limited");
    }
    let server = config.server().clone();
    layer.policies(config.into_policies()).on_failure(server.on_failure()).instances(server.instances())
}

fn app(layer: RateLimitLayer) -> Router {
    Router::new()
        .route("/", get(async || "hello\n"))
        .route("/search", get(async || "found nothing\n"))
        .route("/login", post(login))
        .route("/slow", get(slow))
        .route("/status/{code}", get(status))
        .layer(layer)
        // Added after the layer, so it is outside: a health check is never limited.
        .route("/healthz", get(async || "ok\n"))
}

#[derive(Deserialize)]
struct Login {
    password: String,
}

async fn login(request: Request) -> (StatusCode, &'static str) {
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let login = if kind.contains("json") {
        Json::<Login>::from_request(request, &()).await.ok().map(|Json(login)| login)
    } else {
        Form::<Login>::from_request(request, &()).await.ok().map(|Form(login)| login)
    };
    match login {
        Some(login) if login.password == "correct horse" => (StatusCode::OK, "welcome\n"),
        _ => (StatusCode::UNAUTHORIZED, "wrong password\n"),
    }
}

#[derive(Deserialize)]
struct Slow {
    ms: u64,
}

async fn slow(Query(Slow { ms }): Query<Slow>) -> Result<String, (StatusCode, String)> {
    let pause = Duration::from_millis(ms);
    if pause > SLOWEST {
        return Err((StatusCode::BAD_REQUEST, format!("ms is at most {}\n", SLOWEST.as_millis())));
    }
    tokio::time::sleep(pause).await;
    Ok(format!("waited {ms} ms\n"))
}

async fn status(Path(code): Path<u16>) -> Result<StatusCode, (StatusCode, &'static str)> {
    // 1xx is no final answer in HTTP.
    let status = StatusCode::from_u16(code).ok().filter(|status| !status.is_informational());
    status.ok_or((StatusCode::BAD_REQUEST, "a status is 200 to 999\n"))
}

/// Serves until `stop`, then lets requests under way finish for a while.
async fn serve(
    listener: TcpListener,
    app: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), BoxError> {
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async {
        stop.await;
        tracing::info!("stopping");
        tokio::spawn(async {
            tokio::time::sleep(GRACE).await;
            tracing::warn!("stopped with requests under way");
            std::process::exit(0);
        });
    });
    Ok(server.await?)
}

/// Listens for the signals at once, and ends with the first of them.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// An error and its causes, each told once.
fn in_one_line(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.contains(&text) {
            line = line + ": " + &text;
        }
        cause = error.source();
    }
    line.replace(char::is_control, " ")
}
