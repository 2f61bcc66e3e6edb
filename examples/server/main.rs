//! A small HTTP server with limits, in memory or in Redis:
//!
//! ```text
//! cargo run --example server -- [--addr ADDRESS] [--redis URL] [--config FILE] [--explain]
//! ```
//!
//! The file's policies replace the built-in ones, and are reloaded on SIGHUP and when the file changes;
//! `examples/policies.toml` has every option. With `--explain`, `GET /explain?path=/login&method=POST` shows what the
//! policies make of a request, to this machine only. With `--features metrics`, `GET /metrics` serves metrics for
//! Prometheus.

mod args;
mod explain;
mod limits;
#[cfg(feature = "metrics")]
mod metrics;
mod reload;
mod routes;
mod shutdown;

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use tokio::net::TcpListener;
use tollgate::{MemoryStore, RedisStore};
use tracing_subscriber::EnvFilter;

use crate::args::Args;
use crate::reload::ConfigFile;

type BoxError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    logs.with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"))).init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run() -> Result<(), BoxError> {
    let args = Args::read(std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()))?;
    let file = args.config.as_deref().map(ConfigFile::open).transpose()?;
    let ((layer, shedder), store) = match &args.redis {
        Some(url) => {
            let store = RedisStore::builder().prefix("example-server").lazy().connect(url).await?;
            (limits::layers(store, file.as_ref())?, "redis")
        }
        None => (limits::layers(MemoryStore::new(), file.as_ref())?, "memory"),
    };
    let layer = layer.live();
    let stop = shutdown::signal()?;
    if let Some(file) = file {
        reload::watch(file, layer.clone())?;
    }
    let listener = TcpListener::bind(&args.addr).await;
    let listener =
        listener.map_err(|error| format!("cannot listen on {:?}: {error}: use --addr HOST:PORT", args.addr))?;
    let address = listener.local_addr()?;
    writeln!(std::io::stdout(), "listening on http://{address}, store: {store}")?;
    tracing::info!(%address, store, "ready");
    let app = routes::app(&layer, shedder, args.explain);
    #[cfg(feature = "metrics")]
    let app = app.route("/metrics", metrics::record()?);
    shutdown::serve(listener, app, stop).await
}
