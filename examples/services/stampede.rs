//! Many requests for one expensive report at once, which is made once.
//!
//! A limit bounds how much work clients cause, but not work that all of them cause together: when a popular entry of a
//! cache expires, each request that comes before the next one is made would make it again. Here one call makes it, and
//! all requests that wait for it get the same report. The limits are outside, so each request is charged:
//!
//! ```text
//! 100 requests, 1 report
//! after it has expired: 100 requests, 2 reports
//! ```
//!
//! `cargo run -p tollgate-services --example stampede`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::routing::get;
use futures::future::join_all;
use http::StatusCode;
use moka::future::Cache;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// How long a report is served before a new one is made.
const LIFE: Duration = Duration::from_secs(1);

/// Reports that were made, by what was asked for.
#[derive(Clone)]
pub(crate) struct Reports {
    cache: Cache<String, Arc<str>>,
    made: Arc<AtomicU32>,
}

impl Reports {
    pub(crate) fn new() -> Self {
        Self { cache: Cache::builder().max_capacity(1_000).time_to_live(LIFE).build(), made: Arc::default() }
    }

    pub(crate) fn made(&self) -> u32 {
        self.made.load(Ordering::Relaxed)
    }

    /// Returns a report: of all that ask for one that there is not, the first makes it, and the others wait for it.
    ///
    /// It is made in a task of its own. Otherwise it would be dropped with the request of the first client if that
    /// disconnects, and the next one would begin anew. An error is returned to all that wait, and not cached.
    async fn get(&self, months: String) -> Result<Arc<str>, Error> {
        if let Some(report) = self.cache.get(&months).await {
            return Ok(report);
        }
        let Self { cache, made } = self.clone();
        let make = async move {
            let report = make_report(&months, &made);
            cache.try_get_with(months.clone(), report).await
        };
        Ok(tokio::spawn(make).await?.map_err(|error: Arc<Error>| error.to_string())?)
    }
}

/// Makes a report, which takes a while.
async fn make_report(months: &str, made: &AtomicU32) -> Result<Arc<str>, Error> {
    let number = made.fetch_add(1, Ordering::Relaxed) + 1;
    sleep(Duration::from_millis(200)).await;
    if months == "13" {
        Err("a year has 12 months".into())
    } else {
        Ok(format!("report {number} of {months}\n").into())
    }
}

/// Returns the months of a query in one form. Clients can write one query in many ways, and each would be an entry of its
/// own; what a report does not depend on is left out.
fn months(query: Option<&str>) -> String {
    let given = query.into_iter().flat_map(|query| query.split('&')).filter_map(|pair| pair.strip_prefix("months="));
    let mut months: Vec<u8> = given.filter_map(|month| month.parse().ok()).collect();
    months.sort_unstable();
    months.dedup();
    months.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

/// All clients see the same report. If it depended on the user, the user would have to be a part of the key: otherwise
/// one would receive the report of another.
async fn report(State(reports): State<Reports>, RawQuery(query): RawQuery) -> Result<String, (StatusCode, String)> {
    let report = reports.get(months(query.as_deref())).await;
    report.map(|report| report.to_string()).map_err(|error| (StatusCode::BAD_GATEWAY, error.to_string()))
}

pub(crate) fn app(reports: Reports, quota: Quota) -> Router {
    let limits = RateLimitLayer::new(MemoryStore::new(), Policy::new("reports", quota));
    Router::new().route("/report", get(report)).with_state(reports).layer(limits)
}

/// Sends a request, and returns the status line of its response.
async fn ask(address: std::net::SocketAddr) -> Result<String, Error> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /report?months=2&months=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response.lines().next().unwrap_or_default().to_owned())
}

/// Sends 100 requests at once, and returns how many were served.
async fn stampede(address: std::net::SocketAddr) -> usize {
    let responses = join_all((0..100).map(|_| ask(address))).await;
    responses.iter().flatten().filter(|status| status.contains("200")).count()
}

fn reports(count: u32) -> String {
    if count == 1 { "1 report".to_owned() } else { format!("{count} reports") }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let made = Reports::new();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(axum::serve(listener, app(made.clone(), Quota::per_second(500))).into_future());
    println!("{} requests, {}", stampede(address).await, reports(made.made()));
    sleep(LIFE).await;
    println!("after it has expired: {} requests, {}", stampede(address).await, reports(made.made()));
    server.abort();
    Ok(())
}
