//! A service that exports its spans, and the metrics of its limit, to an OpenTelemetry collector by OTLP over gRPC.
//!
//! The collector is at `OTEL_EXPORTER_OTLP_ENDPOINT`, or `http://localhost:4317`. With one that prints what it receives:
//!
//! ```text
//! $ scripts/tools rotel
//! $ target/tools/rotel/rotel/rotel-agent start --exporter blackhole --debug-log traces --debug-log metrics \
//!     --debug-log-verbosity detailed &
//! $ cargo run -p tollgate-opentelemetry &
//! listening on http://127.0.0.1:3000, exports by OTLP
//! $ for n in $(seq 7); do curl -so /dev/null -w '%{http_code} ' http://127.0.0.1:3000/; done
//! 200 200 200 200 200 429 429
//! $ kill -INT %2
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use axum::{Router, extract::Request, response::Response, routing::get};
use metrics_opentelemetry::{OpenTelemetryMetrics, OpenTelemetryRecorder};
use opentelemetry::{metrics::MeterProvider, trace::TracerProvider};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider, trace::SdkTracerProvider};
use tokio::net::TcpListener;
use tollgate::{MemoryStore, Policy, Quota, RateLimitLayer, key};
use tower_http::trace::TraceLayer;
use tracing::{Span, field::Empty};
use tracing_subscriber::{filter::LevelFilter, prelude::*};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// In seconds. The default boundaries of OpenTelemetry, 0, 5, 10 and so on, are for milliseconds.
const BUCKETS: [f64; 9] = [0.000_01, 0.000_1, 0.000_5, 0.001, 0.002_5, 0.01, 0.025, 0.05, 0.1];

/// Exports spans in batches.
fn trace(resource: &Resource) -> Result<SdkTracerProvider, BoxError> {
    let exporter = SpanExporter::builder().with_tonic().build()?;
    let provider = SdkTracerProvider::builder().with_resource(resource.clone()).with_batch_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("service"));
    // The log shows exports that fail.
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    tracing_subscriber::registry().with(LevelFilter::INFO).with(layer).with(log).try_init()?;
    Ok(provider)
}

/// Exports metrics each minute, or each `OTEL_METRIC_EXPORT_INTERVAL` milliseconds.
fn measure(resource: &Resource) -> Result<SdkMeterProvider, BoxError> {
    let exporter = MetricExporter::builder().with_tonic().build()?;
    let provider = SdkMeterProvider::builder().with_resource(resource.clone()).with_periodic_exporter(exporter).build();
    let recorder = OpenTelemetryRecorder::new(OpenTelemetryMetrics::new(provider.meter("tollgate")));
    recorder.set_histogram_bounds(["tollgate_decision_seconds"].into_iter(), &BUCKETS);
    metrics::set_global_recorder(recorder)?;
    Ok(provider)
}

/// `record_span` fills in the fields `ratelimit.*` that are declared here.
fn span(request: &Request) -> Span {
    tracing::info_span!(
        "request",
        otel.kind = "server",
        http.request.method = request.method().as_str(),
        url.path = request.uri().path(),
        http.response.status_code = Empty,
        ratelimit.allowed = Empty,
        ratelimit.source = Empty,
        ratelimit.policy = Empty,
        ratelimit.limit = Empty,
        ratelimit.remaining = Empty,
    )
}

fn app() -> Router {
    let policy = Policy::new("ip", Quota::per_minute(5)).key(key::client_ip());
    let status = |response: &Response, _: Duration, span: &Span| {
        // Unsigned integers arrive as text.
        span.record("http.response.status_code", i64::from(response.status().as_u16()));
    };
    Router::new()
        .route("/", get(async || "hello\n"))
        .layer(RateLimitLayer::new(MemoryStore::new(), policy).record_span())
        .layer(TraceLayer::new_for_http().make_span_with(span).on_response(status))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let resource = Resource::builder().with_service_name("tollgate-example").build();
    let (spans, metrics) = (trace(&resource)?, measure(&resource)?);
    let listener = TcpListener::bind(std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:3000")).await?;
    println!("listening on http://{}, exports by OTLP", listener.local_addr()?);
    let app = app().into_make_service_with_connect_info::<SocketAddr>();
    let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    axum::serve(listener, app).with_graceful_shutdown(stop).await?;
    // Exports what is left of both, even if one fails.
    let (spans, metrics) = (spans.shutdown(), metrics.shutdown());
    Ok(spans.and(metrics)?)
}
