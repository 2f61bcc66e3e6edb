//! A small HTTP server with limits in PostgreSQL:
//!
//! ```text
//! cargo run -p tollgate-postgres -- [--addr ADDRESS] --postgres URL
//! ```
//!
//! It starts, and goes on, while the database is unavailable. Of eleven requests, with some headers left out:
//!
//! ```text
//! $ target/debug/tollgate-postgres --postgres postgres://postgres@127.0.0.1:15432/postgres &
//! listening on http://127.0.0.1:3000, store: postgres
//! 2026-11-23T05:37:20.203942Z  INFO tollgate_postgres: the table is there
//! $ curl -si http://127.0.0.1:3000/
//! HTTP/1.1 200 OK
//! ratelimit-policy: "ip";q=10;w=60
//! ratelimit: "ip";r=9;t=54
//!
//! hello
//! $ for n in $(seq 2 10); do curl -so /dev/null -w '%{http_code} ' http://127.0.0.1:3000/; done; echo
//! 200 200 200 200 200 200 200 200 200
//! $ curl -si http://127.0.0.1:3000/
//! HTTP/1.1 429 Too Many Requests
//! retry-after: 6
//! ratelimit-policy: "ip";q=10;w=60
//! ratelimit: "ip";r=0;t=6
//! $ psql -c 'SELECT id, expires_at FROM tollgate_states'
//!               id               |          expires_at
//! -------------------------------+-------------------------------
//!  {ip:127.0.0.1}:ip:1t60000000u | 2026-11-23 05:39:21.718684+00
//! (1 row)
//! ```

mod args;

use std::error::Error;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::store::DenyCache;
use tollgate::{OnFailure, Quota, RateLimitLayer};
use tollgate_sql::postgres::Postgres;
use tracing_subscriber::EnvFilter;

use crate::args::Args;

type BoxError = Box<dyn Error + Send + Sync>;

/// How long until the table is tried to be created again.
const AGAIN: Duration = Duration::from_secs(1);

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
    let args = Args::read(std::env::args().skip(1))?;
    let postgres = Postgres::connect_lazy(&args.postgres)?;
    let layer = layer(&postgres)?;
    tokio::spawn(migrate(postgres));
    let listener = TcpListener::bind(&args.addr).await;
    let listener = listener.map_err(|error| format!("cannot listen on {:?}: {error}", args.addr))?;
    writeln!(std::io::stdout(), "listening on http://{}, store: postgres", listener.local_addr()?)?;
    let app = Router::new().route("/", get(async || "hello\n")).layer(layer).route("/healthz", get(async || "ok\n"));
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let stop = async {
        // Without the signal the server runs until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    Ok(axum::serve(listener, service).with_graceful_shutdown(stop).await?)
}

/// Ten requests a minute for each address. Refusals are cached, and while the database is unavailable, which the circuit
/// breaker of the layer notices, the limit is that of a local store.
fn layer(postgres: &Postgres) -> Result<RateLimitLayer, tollgate::Error> {
    let store = DenyCache::new(postgres.store()?);
    Ok(RateLimitLayer::composite(store).ip(Quota::per_minute(10)).on_failure(OnFailure::Fallback))
}

/// Creates the table, as soon as the database is there.
async fn migrate(postgres: Postgres) {
    while let Err(error) = postgres.migrate().await {
        tracing::warn!("the table was not created, which is tried again: {error:#}");
        tokio::time::sleep(AGAIN).await;
    }
    tracing::info!("the table is there");
}
